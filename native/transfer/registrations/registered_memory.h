// SPDX-License-Identifier: Apache-2.0
//
// The registrations of an engine, as the server of data connections looks at them.
#pragma once

#include <memory>
#include <utility>

#include "tcp/exposure.h"
#include "transfer/registrations/registration_page.h"

namespace memfabric {

class RegisteredMemory final : public tcp::Exposure {
public:
    explicit RegisteredMemory(std::shared_ptr<RegistrationPage> page) : page_(std::move(page)) {}

    std::uint64_t generation() const noexcept override {
        return page_->words().generation.load(std::memory_order_seq_cst);
    }
    bool covers(std::uint64_t address, std::uint64_t size_bytes) const noexcept override {
        for (;;) {
            RegistrationScan scan(page_->words());
            std::uint32_t segment = kPrivateMemory;
            const bool covered = scan.covers(address, size_bytes, segment);
            if (scan.current()) return covered;
        }
    }

private:
    const std::shared_ptr<RegistrationPage> page_;
};

}  // namespace memfabric
