"""Checks the output of `--json` against the OpenAPI document. Start reading at `check_json_output`."""

from functools import cache

from jsonschema_rs import Draft202012Validator

from support import Server

# The operation whose response a command prints: the last one, where it calls several.
OPERATIONS = {
    "cluster create": "POST /cluster/create",
    "cluster destroy": "DELETE /cluster/{cluster}",
    "cluster list": "GET /cluster/list",
    "cluster info": "GET /cluster/info/{cluster}",
    "cluster edit": "PATCH /cluster/edit/{cluster}",
    "cluster attach": "POST /storage/attach",
    "cluster detach": "POST /storage/detach",
    "cluster restart": "POST /cluster/restart/{cluster}",
    "cluster types": "GET /cluster/types",
    "storage create": "POST /storage/create",
    "storage destroy": "DELETE /storage/{storage_id}",
    "storage list": "GET /storage/list",
    "storage info": "GET /storage/info/{storage_id}",
    "storage edit": "PATCH /storage/edit/{storage_id}",
    "object-storage enable": "POST /object-storage/enable",
    "object-storage disable": "DELETE /object-storage/disable",
    "object-storage credentials": "GET /object-storage/credentials",
    "object-storage usage": "GET /object-storage/usage",
    "object-storage configure aws": "GET /object-storage/configure/aws",
    "object-storage configure rclone": "GET /object-storage/configure/rclone",
    "object-storage keys list": "GET /object-storage/keys",
    "object-storage keys create": "POST /object-storage/keys/create",
    "object-storage keys revoke": "DELETE /object-storage/keys/revoke/{key_id}",
    "object-storage keys retire-legacy": "POST /object-storage/keys/retire-legacy",
    "object-storage bucket list": "GET /object-storage/bucket/list",
    "object-storage bucket create": "PUT /object-storage/bucket/create/{bucket_name}",
    "object-storage bucket delete": "DELETE /object-storage/bucket/delete/{bucket_name}",
    "job init": "GET /job/init",
    "job push": "POST /job/start/{job_id}",
    "job run": "GET /job/info/{job_id}",
    "job list": "GET /job/list",
    "job info": "GET /job/info/{job_id}",
    "job cancel": "POST /job/cancel/{job_id}",
    "job delete": "DELETE /job/delete/{job_id}",
    "job listen": "GET /job/info/{job_id}",
    "job logs": "GET /job/info/{job_id}",
    "job pull": "GET /job/pull/{job_id}",
    "request list": "GET /request/list",
    "request info": "GET /request/info/{request_id}",
    "request wait": "GET /request/info/{request_id}",
    "me": "GET /user/info",
    "me preferences": "GET /user/preferences",
    "me sshkey add": "POST /user/ssh-key/add",
    "me sshkey list": "GET /user/ssh-key/list",
    "me sshkey remove": "DELETE /user/ssh-key/remove/{key_id}",
    "me sshkey prove": "POST /user/ssh-key/prove/{key_id}",
    "ssh": "GET /cluster/info/{cluster}",
    "login": "GET /user/info",
    "admin user create": "POST /admin/user/create",
    "admin user list": "GET /admin/user/list",
    "admin user disable": "POST /admin/user/disable/{user_id}",
    "admin user enable": "POST /admin/user/enable/{user_id}",
    "admin org info": "GET /user/organization/info",
    "admin grant": "POST /admin/grant",
    "admin limits show": "GET /admin/limits/{scope}",
    "admin limits list": "GET /admin/limits",
    "admin limits set": "PATCH /admin/limits/{scope}",
    "admin limits clear": "DELETE /admin/limits/{scope}",
    "admin host": "GET /admin/host/info",
    "admin host drain": "POST /admin/host/drain",
    "admin host undrain": "POST /admin/host/undrain",
    "admin gpu list": "GET /admin/gpu/list",
    "admin gpu drain": "POST /admin/gpu/drain/{gpu_id}",
    "admin gpu undrain": "POST /admin/gpu/undrain/{gpu_id}",
    "admin gpu clear": "POST /admin/gpu/clear/{gpu_id}",
    "admin events": "GET /admin/event/list",
    "admin key create": "POST /admin/key/create",
    "admin key list": "GET /admin/key/list",
    "admin key revoke": "DELETE /admin/key/revoke/{key_id}",
}
ALIASES = {"ls": ["list"], "rm": ["destroy", "delete", "remove"]}
# The log of a job goes to the error stream; the document is how the job ended.
LOGS = ("job run", "job listen", "job logs")
STATUSES = {1: ("401", "402", "403"), 2: ("400", "422"), 3: ("404",), 4: ("409",)}


def command_of(line: str, commands=OPERATIONS) -> str | None:
    """The command in a line, whatever follows it."""
    words = [word for word in line.split() if not word.startswith("-")]
    for length in range(len(words), 0, -1):
        *first, last = words[:length]
        for name in (" ".join([*first, each]) for each in [last, *ALIASES.get(last, [])]):
            if name in commands:
                return name
    return None


def check_json_output(server: Server, line: str, code: int, body: dict):
    """Fails unless the body is the one that the OpenAPI document promises for the command and its exit code."""
    command = command_of(line)
    if command is None:
        return
    if code:
        return check_error(server, command, code, body)
    if "--wait" in line.split() and command != "job cancel":
        command = "request wait"
    if command in LOGS or command == "job cancel" and "--wait" in line or "--listen" in line:
        check_schema(server, "JobInfoResponse", body)
    elif command == "ssh":
        check_schema(server, "InstanceInfo", body)
    else:
        method, path = OPERATIONS[command].split()
        responses = openapi_document(server)["paths"][path][method.lower()]["responses"]
        [schema] = [each.get("content") for status, each in responses.items() if status.startswith("2")]
        if schema is None:  # The operation has no body.
            assert body == {}, body
        else:
            check_schema(server, schema["application/json"]["schema"], body)


def check_error(server: Server, command: str, code: int, body: dict):
    """A refusal of the engine has an error code. A refusal of the client itself has only a message. A request or a
    job that was waited for and failed is printed as it is."""
    if "job_info" in body:
        return check_schema(server, "JobInfoResponse", body)
    assert len(body["message"].split()) >= 3, body
    if "request_type" in body:
        return check_schema(server, "RequestInfoResponse", body)
    if "code" in body:
        method, path = OPERATIONS[command].split()
        assert set(STATUSES[code]) & set(openapi_document(server)["paths"][path][method.lower()]["responses"]), (command, code)
        check_schema(server, "HTTPValidationError" if isinstance(body["detail"], list) else "ErrorBody", body)
    else:
        assert body.keys() == {"message"}, body


def check_schema(server: Server, schema: str | dict, body):
    """Validates a body against a schema, given by name or as a reference."""
    reference = schema if isinstance(schema, str) else schema["$ref"].rpartition("/")[2]
    errors = [error.message for error in validator(server, reference).iter_errors(body)]
    assert not errors, f"not a {reference}: {errors}\n{body}"


@cache
def validator(server: Server, name: str) -> Draft202012Validator:
    """The validator of one schema."""
    schemas = {"$ref": f"#/components/schemas/{name}", "components": openapi_document(server)["components"]}
    return Draft202012Validator(schemas)


@cache
def openapi_document(server: Server) -> dict:
    """The OpenAPI document of the engine."""
    return server.call("GET", "/openapi.json", expect=200).json()
