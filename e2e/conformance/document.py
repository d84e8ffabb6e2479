"""Compares responses with the engine's OpenAPI document and the original specification. Start reading at `Document`."""

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import requests
import yaml
from jsonschema_rs import Draft202012Validator

SEEDS = Path(__file__).parents[2] / "crates/server/tests/seeds"


class Document:
    """An OpenAPI document, whole or in part."""

    def __init__(self, text: dict):
        self.text = text
        # A path without parameters takes precedence over a template that matches as well.
        self.paths = sorted(text["paths"], key=lambda path: path.count("{"))

    def operation(self, method: str, address: str) -> dict | None:
        """The operation of a call, if it is documented."""
        place = urlsplit(address).path
        for path in self.paths:
            pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path))
            if re.fullmatch(pattern, place) and method.lower() in self.text["paths"][path]:
                return self.text["paths"][path][method.lower()]
        return None

    def schema(self, operation: dict, status: int) -> dict | None:
        """The schema of a response body, if it is documented."""
        told = operation["responses"].get(str(status), {})
        return told.get("content", {}).get("application/json", {}).get("schema")

    def faults(self, schema: dict, body) -> list[str]:
        """The differences between a body and a schema."""
        whole = {"allOf": [schema], "components": self.text.get("components", {})}
        return [error.message for error in Draft202012Validator(whole).iter_errors(body)]

    def check(self, method: str, address: str, answer: requests.Response):
        """Fails unless a response matches the document. Undocumented calls are not checked."""
        operation, status = self.operation(method, address), answer.status_code
        if operation is None:
            return
        call = f"{method} {address}: {status}"
        assert not answer.ok or str(status) in operation["responses"], f"{call} is a success that no document lists"
        if schema := self.schema(operation, status):
            faults = self.faults(schema, answer.json())
            assert not faults, f"{call} differs from the document: {faults}\n{answer.text}"

    def required(self, method: str, path: str, status: int) -> set[str]:
        """The required fields of a response."""
        schema = self.schema(self.text["paths"][path][method], status)
        while "$ref" in schema:
            schema = self.text["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return set(schema["required"])


def check_refusal(call: str, answer: requests.Response):
    """Fails unless a refusal has a message, because that is what clients show."""
    body = json.loads(answer.text)
    said = body.get("message") if isinstance(body, dict) else None
    assert len((said or "").split()) >= 2, f"{call}: {answer.status_code} {answer.text}"


def seeds() -> list[Document]:
    """The API's original specification: three operations, letter-exact."""
    texts = [path.read_text() for path in sorted(SEEDS.glob("*.txt"))]
    return [Document(yaml.safe_load(re.search(r"````yaml [^\n]*\n(.*?)\n````", text, re.S)[1])) for text in texts]
