// SPDX-License-Identifier: Apache-2.0
//
// A library that is nothing but its name: see ../library.cmake.
