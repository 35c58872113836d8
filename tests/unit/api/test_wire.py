"""Tests that masters and agents of different versions understand each other.

During an upgrade a job has a master and agents of two versions. Therefore no field, value or method
that one of them reads may be removed, renumbered or given another type. `wire.txt` lists each of
them on a line. Add a line for each new one. A field that no version reads may be removed if its
number is reserved.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from elasticjob_api import v1
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto

LIST = Path(__file__).with_name("wire.txt")
TYPES = {
    getattr(FieldDescriptor, name): name.removeprefix("TYPE_").lower()
    for name in dir(FieldDescriptor)
    if name.startswith("TYPE_")
}


@pytest.mark.guarantee("upgrade-while-jobs-run")
def test_the_wire_has_all_entries_of_other_versions_and_new_ones_are_listed() -> None:
    listed = set(LIST.read_text().splitlines())
    found = {line for file in files() for line in of_file(file)}
    assert sorted(listed - found) == [], "removed or changed, which other versions do not know"
    assert sorted(found - listed) == [], (
        f"new: add these lines to {LIST.name}, from now on they stay"
    )


def files() -> Iterator[FileDescriptor]:
    for path in sorted(Path(v1.__path__[0]).glob("*_pb2.py")):
        yield import_module(f"elasticjob_api.v1.{path.stem}").DESCRIPTOR


def of_file(file: FileDescriptor) -> Iterator[str]:
    for message in file.message_types_by_name.values():
        yield from of_message(message)
    for enum in file.enum_types_by_name.values():
        yield from (f"{enum.full_name}.{value.name} = {value.number}" for value in enum.values)
    for service in file.services_by_name.values():
        for method in service.methods:
            asked = method.input_type.full_name
            answered = method.output_type.full_name
            request = f"{'stream ' * method.client_streaming}{asked}"
            response = f"{'stream ' * method.server_streaming}{answered}"
            yield f"{method.full_name}: {request} -> {response}"


def of_message(message: Descriptor) -> Iterator[str]:
    for field in message.fields:
        of = field.message_type or field.enum_type
        kind = of.full_name if of else TYPES[field.type]
        many = "repeated " if field.is_repeated else ""
        one_of = f" of {field.containing_oneof.name}" if field.containing_oneof else ""
        yield f"{field.full_name} = {field.number}: {many}{kind}{one_of}"
    proto = DescriptorProto()
    message.CopyToProto(proto)
    for reserved in proto.reserved_range:
        yield from (
            f"{message.full_name}: {n} is reserved" for n in range(reserved.start, reserved.end)
        )
    for enum in message.enum_types:
        yield from (f"{enum.full_name}.{value.name} = {value.number}" for value in enum.values)
    for inner in message.nested_types:
        yield from of_message(inner)
