// SPDX-License-Identifier: Apache-2.0
#include "tls/reasons.h"

namespace memfabric::tls {
namespace {

const char* said_by(int alert) {
    switch (alert) {
        case 40:
            return "that the two have no way to encrypt in common";
        case 42:
            return "that this side's certificate is bad; look at its log";
        case 43:
            return "that this side's certificate is not for this use; it needs server and client authentication";
        case 44:
            return "that this side's certificate is revoked; get a new one";
        case 45:
            return "that this side's certificate has expired; renew it";
        case 46:
            return "that it cannot check this side's certificate; look at its log";
        case 48:
            return "that this side's certificate is of no authority it knows; use the same tlsCaFile";
        case 51:
            return "that a signature is wrong; certificate and key of this side may not belong together";
        case 70:
            return "that this side does not speak TLS 1.3";
        case 116:
            return "that this side shows no certificate; set_conf_store_tls gives it one";
        default:
            return nullptr;
    }
}

const char* remedy_of(long verify_result) {
    switch (verify_result) {
        case 3:
            return "add the list of revoked certificates of its authority to tlsCrlFile";
        case 9:
        case 11:
            return "check the clocks of both machines";
        case 10:
            return "renew it";
        case 12:
            return "renew the list of revoked certificates in tlsCrlFile";
        case 18:
        case 19:
        case 20:
        case 21:
            return "give both sides certificates of an authority in tlsCaFile";
        case 23:
            return "give it a new certificate, if it is still to be a member";
        case 26:
            return "members need certificates for both server and client authentication, because any of them may be "
                   "connected to";
        default:
            return "look at both certificates";
    }
}

}  // namespace

std::string explain_alert(int alert) {
    const char* const said = said_by(alert);
    return said != nullptr ? std::string("it says ") + said : "it ended with TLS alert " + std::to_string(alert);
}

std::string explain_distrust(long verify_result, const char* words) {
    return std::string("its certificate is not trusted: ") + words + "; " + remedy_of(verify_result);
}

}  // namespace memfabric::tls
