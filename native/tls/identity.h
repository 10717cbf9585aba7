// SPDX-License-Identifier: Apache-2.0
//
// Who this process is, for others: its certificates and key as they are now. Connections begin with those of their
// moment; a renewal counts from the next one on.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "tls/context.h"

namespace memfabric::tls {

// Thread contract: any thread.
class Identity {
public:
    explicit Identity(std::shared_ptr<const Context> context) : context_(std::move(context)) {}

    std::shared_ptr<const Context> context() const {
        const std::lock_guard lock(mutex_);
        return context_;
    }
    void renew(std::shared_ptr<const Context> context) {
        const std::lock_guard lock(mutex_);
        context_ = std::move(context);
    }

private:
    mutable std::mutex mutex_;
    std::shared_ptr<const Context> context_;
};

}  // namespace memfabric::tls
