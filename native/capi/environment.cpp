// SPDX-License-Identifier: Apache-2.0
#include "capi/environment.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "base/last_error.h"

namespace memfabric::capi {
namespace {

namespace fs = std::filesystem;

// Beside the library when it was installed apart from its package; its one line is the path of an interpreter.
constexpr const char* kNote = "mf_smem.python";
constexpr const char* kPackage = "memfabric_hybrid";
constexpr const char* kProgram = "python" MF_PYTHON_VERSION;

bool is_there(const fs::path& path) {
    std::error_code ignored;
    return fs::exists(path, ignored);
}

fs::path real_path(const fs::path& path) {
    std::error_code failed;
    fs::path real = fs::canonical(path, failed);
    return failed ? path : real;
}

std::string first_line(const fs::path& file) {
    std::ifstream stream(file);
    std::string line;
    std::getline(stream, line);
    return line;
}

// "home" of a virtual environment: the folder of the interpreter it was made with. "" if it is none.
std::string home_of(const fs::path& prefix) {
    std::ifstream stream(prefix / "pyvenv.cfg");
    std::string line;
    while (std::getline(stream, line)) {
        const std::size_t equals = line.find('=');
        if (!line.starts_with("home") || equals == std::string::npos) continue;
        const std::size_t start = line.find_first_not_of(" \t", equals + 1);
        if (start != std::string::npos) return line.substr(start, line.find_last_not_of(" \t\r") + 1 - start);
    }
    return {};
}

std::string in_path(const std::string& name) {
    const char* const path = std::getenv("PATH");
    std::string_view rest = path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path;
    while (!rest.empty()) {
        const std::size_t colon = std::min(rest.find(':'), rest.size());
        const fs::path candidate = fs::path(rest.substr(0, colon)) / name;
        if (colon != 0 && is_there(candidate)) return candidate;
        rest.remove_prefix(std::min(colon + 1, rest.size()));
    }
    return {};
}

// <prefix>/lib/pythonX.Y/site-packages belongs to <prefix>/bin/pythonX.Y; dist-packages, wherever it is, to Debian's.
// Folders that belong to no interpreter (a user's own packages, pip's --target) are used by the one in the path.
std::string program_for(const fs::path& packages) {
    const fs::path debians = fs::path("/usr/bin") / kProgram;
    if (packages.filename() == "dist-packages" && is_there(debians)) return debians;
    if (packages.parent_path().filename().string().starts_with("python")) {
        const fs::path prefix = packages.parent_path().parent_path().parent_path();
        for (const char* const name : {kProgram, "python3", "python"}) {
            if (const fs::path program = prefix / "bin" / name; is_there(program)) return program;
        }
    }
    return in_path(kProgram);
}

void add_libraries_near(const fs::path& bin, Environment& found) {
    for (const char* const folder : {"lib", "lib64"}) {
        const fs::path library = bin.parent_path() / folder / MF_PYTHON_LIBRARY;
        if (is_there(library)) found.python_libraries.push_back(library);
    }
}

// This very file, as long as a relative path of it means something: a program may go to another folder. "" if the
// loader does not say.
const fs::path& library_file() {
    static const fs::path& file = *new fs::path([] {
        Dl_info self{};
        const bool is_known = dladdr(reinterpret_cast<const void*>(&find_environment), &self) != 0;
        return is_known && self.dli_fname != nullptr ? fs::absolute(real_path(self.dli_fname)) : fs::path();
    }());
    return file;
}

[[gnu::constructor]] void find_library_file() { static_cast<void>(library_file()); }

}  // namespace

Status find_environment(Environment& found) {
    found = {};
    const fs::path& library = library_file();
    if (library.empty()) return fail(Status::Error, "the loader does not say where libmf_smem.so is");
    const fs::path folder = library.parent_path();
    found.library = library;
    if (is_there(folder / kNote)) {
        found.program = first_line(folder / kNote);
        if (!is_there(found.program)) {
            return fail(Status::Error,
                        "%s says that Python is %s, which does not exist: install memfabric_hybrid again",
                        (folder / kNote).c_str(), found.program.c_str());
        }
    } else {
        const fs::path package = folder.parent_path();
        if (package.filename() != kPackage || !is_there(package / MF_NATIVE_MODULE)) {
            return fail(Status::Error,
                        "libmf_smem.so is %s, and no Python package memfabric_hybrid is around it: use the library "
                        "where `pip install` has put it (memfabric_hybrid.get_lib_path())",
                        library.c_str());
        }
        found.packages = package.parent_path();
        found.program = program_for(found.packages);
        if (found.program.empty()) {
            return fail(Status::Error, "there is no %s for the packages in %s: neither beside them nor in the PATH",
                        kProgram, found.packages.c_str());
        }
    }
    const fs::path bin = fs::path(found.program).parent_path();
    const std::string home = home_of(bin.parent_path());
    if (!home.empty()) add_libraries_near(home, found);
    add_libraries_near(bin, found);
    add_libraries_near(real_path(found.program).parent_path(), found);
    found.python_libraries.emplace_back(MF_PYTHON_LIBRARY);  // wherever the loader looks by itself
    return Status::Ok;
}

}  // namespace memfabric::capi
