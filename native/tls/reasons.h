// SPDX-License-Identifier: Apache-2.0
//
// Why two ends do not trust each other, in sentences that say what to do. "It" is the other end. The only place for
// them: the control plane asks here as well.
#pragma once

#include <string>

#include "base/api.h"

namespace memfabric::tls {

// By the number of the alert that the other end has sent.
MF_API std::string explain_alert(int alert);
// By OpenSSL's number of what is wrong with the other end's certificate, and its words for that.
MF_API std::string explain_distrust(long verify_result, const char* words);

}  // namespace memfabric::tls
