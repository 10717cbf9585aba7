// SPDX-License-Identifier: Apache-2.0
//
// What other libraries of this package use of the core library. All else stays inside: the core is loaded once per
// process, whoever needs it. A variable in a header would exist once in each of them, so variables are defined in
// source files (scripts/check-includes looks); then the linker says what is used without being shown.
#pragma once

#define MF_API [[gnu::visibility("default")]]
