// SPDX-License-Identifier: Apache-2.0
//
// The part of OpenSSL's C interface that we call, declared by hand: the library is found at run time, so that a build
// needs neither its headers nor itself. It has been the same since 1.1.1. tests/tls/abi_test.cpp compares numbers and
// signatures with the real headers where they are installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memfabric::tls::abi {

// Handles are OpenSSL's own; each has a type, so that they are not confused.
using Method = struct MethodTag;
using Context = struct ContextTag;
using Session = struct SessionTag;
using Bio = struct BioTag;
using BioMethod = struct BioMethodTag;
using Store = struct StoreTag;
using Certificate = struct CertificateTag;
using RevocationList = struct RevocationListTag;
using PrivateKey = struct PrivateKeyTag;

// Commands of `context_control`.
inline constexpr int kSetMode = 33;
inline constexpr int kSetReadAhead = 41;
inline constexpr int kAddToChain = 89;  // with 1: it stays the caller's as well
inline constexpr int kSetOldestVersion = 123;

inline constexpr long kTls13 = 0x0304;
inline constexpr long kReleaseBuffers = 0x10;  // of connections that do nothing
inline constexpr int kVerifyPeer = 0x1;
inline constexpr int kFailWithoutCertificate = 0x2;
inline constexpr unsigned long kCheckRevocation = 0x4;       // of the certificate ...
inline constexpr unsigned long kCheckRevocationOfAll = 0x8;  // ... and of its authorities

// What `get_error` answers.
inline constexpr int kWantRead = 2;
inline constexpr int kZeroReturn = 6;

// Reasons in an error's number: those of alerts begin at 1000.
inline constexpr int kFirstAlert = 1000;
inline constexpr int kNoPeerCertificate = 199;
inline constexpr int kHttpRequest = 156;
inline constexpr int kUnsupportedProtocol = 258;
inline constexpr int kWrongVersion = 267;
inline constexpr int kNoSharedCipher = 193;

// Of a Bio: what it is, what its control is asked, and why a call returned nothing.
inline constexpr int kBioSourceSink = 0x0400;
inline constexpr int kBioFlush = 11;
inline constexpr int kBioRead = 0x01;
inline constexpr int kBioWrite = 0x02;
inline constexpr int kBioRetry = 0x08;

using BioIo = int (*)(Bio*, char*, int);
using BioOut = int (*)(Bio*, const char*, int);
using BioControl = long (*)(Bio*, int, long, void*);
using AskPassphrase = int (*)(char*, int, int, void*);

// The numbers behind `error`: ERR_GET_REASON has looked the same in all versions for what is no system error.
constexpr int reason_of(unsigned long error) { return static_cast<int>(error & 0x7f'ffff); }
constexpr int reason_of_1_1(unsigned long error) { return static_cast<int>(error & 0xfff); }

struct Functions {
    unsigned long (*version)();

    const Method* (*method)();
    Context* (*context_new)(const Method*);
    void (*context_free)(Context*);
    long (*context_control)(Context*, int, long, void*);
    void (*context_set_verify)(Context*, int, void*);
    int (*context_set_ciphers)(Context*, const char*);
    int (*context_set_tickets)(Context*, std::size_t);
    void (*context_set_read_buffer)(Context*, std::size_t);
    int (*context_use_certificate)(Context*, Certificate*);
    int (*context_use_key)(Context*, PrivateKey*);
    Store* (*context_store)(const Context*);

    Session* (*session_new)(Context*);
    void (*session_free)(Session*);
    void (*session_set_bio)(Session*, Bio*, Bio*);
    void (*session_accepts)(Session*);
    void (*session_connects)(Session*);
    int (*shake_hands)(Session*);
    int (*read)(Session*, void*, std::size_t, std::size_t*);
    int (*write)(Session*, const void*, std::size_t, std::size_t*);
    int (*get_error)(const Session*, int);
    int (*has_pending)(const Session*);
    long (*verify_result)(const Session*);

    BioMethod* (*bio_method_new)(int, const char*);
    int (*bio_method_set_write)(BioMethod*, BioOut);
    int (*bio_method_set_read)(BioMethod*, BioIo);
    int (*bio_method_set_control)(BioMethod*, BioControl);
    Bio* (*bio_new)(const BioMethod*);
    Bio* (*bio_of_memory)(const void*, int);
    int (*bio_free)(Bio*);
    void (*bio_set_data)(Bio*, void*);
    void* (*bio_get_data)(Bio*);
    void (*bio_set_init)(Bio*, int);
    void (*bio_set_flags)(Bio*, int);
    void (*bio_clear_flags)(Bio*, int);

    Certificate* (*read_certificate)(Bio*, Certificate**, AskPassphrase, void*);
    RevocationList* (*read_revocations)(Bio*, RevocationList**, AskPassphrase, void*);
    PrivateKey* (*read_key)(Bio*, PrivateKey**, AskPassphrase, void*);
    void (*certificate_free)(Certificate*);
    void (*revocations_free)(RevocationList*);
    void (*key_free)(PrivateKey*);
    int (*store_add_certificate)(Store*, Certificate*);
    int (*store_add_revocations)(Store*, RevocationList*);
    int (*store_set_flags)(Store*, unsigned long);
    const char* (*verify_text)(long);

    unsigned long (*last_error)();
    void (*clear_errors)();
    const char* (*error_text)(unsigned long);
};

}  // namespace memfabric::tls::abi
