"""Hooks that schemathesis loads: half of the values that it makes up give way to ones that the server knows.

Without them nearly every call would end at "there is no such cluster". `TARN_FUZZ_VALUES` names a JSON file: the name
of a parameter, of a property or, for a whole body, of an operation, then the values it may have.
"""

import json
import os
import zlib
from pathlib import Path

import schemathesis
from hypothesis import strategies

VALUES = json.loads(Path(os.environ["TARN_FUZZ_VALUES"]).read_text())
# The choice is drawn like everything else in a test case, so that the seed decides it and a failure can be repeated.
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
    """The same without a long wait: nobody writes to the logs that are asked for."""
    if isinstance(query, dict) and query.get("wait") in range(2, 61):
        return query | {"wait": query["wait"] % 2}
    return query


def exchange_values(given, choice: int):
    """The same object with some of its values exchanged; what is not an object stays what it is."""
    if not isinstance(given, dict):
        return given
    return {name: exchange_value(name, value, choice) for name, value in given.items()}


def exchange_value(name: str, value, choice: int):
    """The value, or one that exists. The name takes part, so that two properties do not always go together."""
    number = zlib.crc32(f"{choice} {name}".encode("utf-8", "backslashreplace"))
    if name not in VALUES or number % 2:
        return value
    return VALUES[name][number // 2 % len(VALUES[name])]
