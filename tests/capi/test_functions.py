"""Each function of the interface, in each form that a generation of documents has: declared with that signature, and
exported. `test_effects.py` shows that each does something.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from support import c_interface, c_programs
from support.c_interface import Shown, exported, forms

HEADERS = "".join(f"#include <smem/host/{name}.h>\n" for name in ("smem", "smem_bm", "smem_shm", "smem_trans"))


def test_the_list_has_all_generations() -> None:
    assert Counter("".join(form.generations for form in forms())) == {"1": 31, "2": 53, "3": 54, "+": 32}


@pytest.mark.parametrize("language", c_programs.LANGUAGES)
def test_all_are_declared(language: str, tmp_path: Path) -> None:
    """A call with values of exactly these types compiles without a warning, and gives a value of that type."""
    source = tmp_path / "calls.c"
    text = HEADERS
    for number, form in enumerate(forms()):
        call = f"{form.name}({', '.join(form.arguments())})"
        head = f"{form.result} call_{number}({form.parameters})"
        text += f"{head};\n{head} {{ {'' if form.result == 'void' else 'return '}{call}; }}\n"
    source.write_text(text + "int main(void) { return 0; }\n")
    c_programs.compile_program(source, tmp_path, language, flags=("-Wconversion",))


@pytest.mark.parametrize("compiler", c_programs.DRIVERS)
def test_compound_literals(compiler: str, tmp_path: Path) -> None:
    """Their commas are arguments to C's macros. C++ has none."""
    source = tmp_path / "literals.c"
    source.write_text(f"""{HEADERS}
int32_t copy(smem_bm_t pool, void* a, void* b) {{
    return smem_bm_copy(pool, &(smem_copy_params){{a, b, 8, NULL}}, SMEMB_COPY_H2G, 0) +
           smem_bm_copy(pool, (&(smem_copy_params){{.src = a, .dest = b, .dataSize = 8}}), SMEMB_COPY_H2G, 0) +
           smem_bm_copy_batch(pool, &(smem_batch_copy_params){{&a, &b, NULL, 1, NULL}}, SMEMB_COPY_H2G, 0) +
           smem_bm_wait(pool, &(smem_batch_copy_params){{&a, &b, (uint64_t[]){{8}}, 1, NULL}}, SMEMB_COPY_H2G, 0) +
           smem_bm_copy(pool, a, b, 8, SMEMB_COPY_H2G, 0) + smem_bm_wait(pool);
}}
int32_t move(smem_trans_t engine, void* a, void* b, void* s, size_t* sizes) {{
    return smem_trans_batch_read(engine, (void*[]){{a, b}}, "id", (const void*[]){{a, b}}, (size_t[]){{1, 2}}, 2, 0) +
           smem_trans_batch_write(engine, (const void*[]){{a}}, "id", (void*[]){{b}}, (size_t[]){{1}}, 1) +
           smem_trans_batch_write(engine, ((const void*[]){{a, b}}), "id", ((void*[]){{b, a}}), sizes, 2) +
           smem_trans_batch_read_submit(engine, (void*[]){{a, b}}, "id", (const void*[]){{a, b}}, sizes, 2, s, 0);
}}
int main(void) {{ return 0; }}
""")
    c_programs.compile_program(source, tmp_path, "c11", compiler)


@pytest.mark.parametrize("compiler", c_programs.DRIVERS)
def test_headers_inside_of_extern_c(compiler: str, tmp_path: Path) -> None:
    """As programs include headers of C that they take for unaware of C++; those for kernels beside them."""
    source = tmp_path / "inside.cpp"
    kernels = "#include <smem/device/smem_shm_aicore_base_api.h>\n"
    source.write_text(f"""extern "C" {{
{HEADERS}{kernels}}}
uint64_t ask(unsigned id, size_t number) {{
    return smem_shm_get_global_rank(0) + smem_shm_get_global_rank() + smem_shm_get_global_rank_size(number) +
           smem_shm_get_symmetric_size(id) + smem_shm_get_symmetric_size(0L);
}}
int32_t join(smem_bm_t pool, smem_shm_t heap) {{
    return smem_bm_join(pool, 0, nullptr) + smem_shm_control_barrier(heap) + int32_t(smem_shm_get_global_rank(heap));
}}
int main() {{ return 0; }}
""")
    c_programs.compile_program(source, tmp_path, "c++17", compiler)


def test_signatures_are_exactly_these(tmp_path: Path) -> None:
    """C++ has a function of exactly this type for each form; C one for what is exported."""
    for language, listed in (("c++17", forms()), ("c11", exported(forms()))):
        source = tmp_path / "types.c"
        pointers = "".join(
            f"extern {form.result} (*const pointer_{number})({form.parameters});\n"
            f"{form.result} (*const pointer_{number})({form.parameters}) = {form.name};\n"
            for number, form in enumerate(listed)
        )
        source.write_text(f"{HEADERS}{pointers}int main(void) {{ return 0; }}\n")
        c_programs.compile_program(source, tmp_path, language)


@pytest.mark.parametrize(
    ("library", "expected"),
    [("libmf_smem.so", {form.name for form in forms()}), ("libmf_smem.so.1", set())],
)
def test_all_are_exported_and_nothing_else(library: str, expected: set[str]) -> None:
    path = c_programs.library().with_name(library)
    listed = subprocess.run(["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True)
    assert {line.split()[-1] for line in listed.stdout.splitlines()} == expected


def test_the_library_has_a_versioned_name() -> None:
    shown = subprocess.run(["readelf", "-d", str(c_programs.library())], capture_output=True, text=True, check=True)
    assert "Library soname: [libmf_smem.so.1]" in shown.stdout
    assert "libpython" not in shown.stdout


def test_documents_are_read_as_they_are_written() -> None:
    """What `scripts/c-interface` compares with the list."""
    document = """
# An interface
`smem_bm_a/_b`, `smem_x_read_submit/_write_submit`, smem_in_no_code and a `smem_bm_t`.
```c
int32_t smem_trans_t smem_trans_create(const char *storeUrl, const smem_trans_config_t *config)
```
 ```c
smem_bm_t smem_bm_create(uint32_t id,
    uint64_t localHBMSize, void *addresses[]);
void smem_uninit();
int32_t smem_set_extern_logger(void (*func)(int level, const char *msg));
```
"""
    assert list(c_interface.shown_in(document)) == [
        Shown("smem_trans_create", ("smem_trans_t", "const char*", "const smem_trans_config_t*")),
        Shown("smem_bm_create", ("smem_bm_t", "uint32_t", "uint64_t", "void**")),
        Shown("smem_uninit", ("void",)),
        Shown("smem_set_extern_logger", ("int32_t", "void(*)(int,const char*)")),
    ]
    assert c_interface.mentioned_in(document) == {
        "smem_bm_a", "smem_bm_b", "smem_x_read_submit", "smem_x_write_submit", "smem_bm_t",
    }  # fmt: skip
