"""Hooks that schemathesis loads. They replace half of the generated values with values that exist on the server.

Without them nearly every call would end in "there is no such cluster". `TARN_FUZZ_VALUES` names a JSON file that maps
the name of a parameter, of a property or, for a whole body, of an operation to the values that it may have.
"""

import json
import os
import zlib
from pathlib import Path

import schemathesis
from hypothesis import strategies

VALUES = json.loads(Path(os.environ["TARN_FUZZ_VALUES"]).read_text())
# The choice is generated like everything else in a test case, so that the seed decides it and a failure can be
# repeated.
CHOICE = strategies.integers(0, 2**32 - 1)


@schemathesis.hook
def flatmap_path_parameters(context, path_parameters):
    """Ids and names in the path."""
    return CHOICE.map(lambda choice: exchange_values(path_parameters, choice))


@schemathesis.hook
def flatmap_query(context, query):
    """Ids and types in the query."""
    return CHOICE.map(lambda choice: shorten_wait(exchange_values(query, choice)))


@schemathesis.hook
def flatmap_body(context, body):
    """Ids, types and keys in the body, or all of it."""
    return CHOICE.map(lambda choice: exchange_value(context.operation.label, exchange_values(body, choice), choice))


def shorten_wait(query):
    """The same query without a long wait: no job writes to the logs."""
    if isinstance(query, dict) and query.get("wait") in range(2, 61):
        return query | {"wait": query["wait"] % 2}
    return query


def exchange_values(given, choice: int):
    """The same object with some of its values replaced; anything else is returned unchanged."""
    if not isinstance(given, dict):
        return given
    return {name: exchange_value(name, value, choice) for name, value in given.items()}


def exchange_value(name: str, value, choice: int):
    """The value, or one that exists. The name is hashed too, so that two properties are not always replaced
    together."""
    number = zlib.crc32(f"{choice} {name}".encode("utf-8", "backslashreplace"))
    if name not in VALUES or number % 2:
        return value
    return VALUES[name][number // 2 % len(VALUES[name])]
