import hashlib

import torch

import s6mod
from s6mod.engine.numerics import NUMERICS
from s6mod.runs.environment import PACKAGE, describe, digest_of, source_digest


def test_a_result_says_what_its_steps_computed():
    facts = describe(torch.device("cpu"))
    assert (facts["numerics"], facts["source"]) == (NUMERICS, source_digest())


def test_the_source_is_that_of_the_package_as_records_have_always_named_it():
    assert s6mod.__file__ == str(PACKAGE / "__init__.py")
    content = hashlib.sha256()
    for file in sorted(PACKAGE.rglob("*.py")):
        content.update(str(file.relative_to(PACKAGE)).encode())
        content.update(file.read_bytes())
    assert source_digest() == content.hexdigest()[:12]


def test_names_and_contents_of_files_name_a_source_and_their_order_does_not():
    files = {"a.py": b"1", "a/b.py": b"2"}
    assert digest_of(files) == digest_of(dict(reversed(files.items())))
    assert len({digest_of(each) for each in (files, files | {"a.py": b"2"}, {"a.py": b"1", "c/b.py": b"2"})}) == 3
