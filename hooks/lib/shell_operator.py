"""Hooks in Python: one file, nothing but the standard library, Python 3.7 or newer.

A hook declares its configuration, binds plain functions to what can happen, and ends with run():

    import shell_operator as hook

    hook.config({"configVersion": "v1", "kubernetes": [{"name": "pods", "kind": "Pod"}]})

    @hook.on("pods", "Added")
    def greet(context):
        hook.log("a new pod", pod=context["object"]["metadata"]["name"])

    hook.run()

A context is the dictionary that the operator wrote, as it is. Every function that answers or asks for something writes it to
the file that the operator named, after it has been turned into JSON without an error; the operator acts on the files when the
hook has ended well, so nothing happens when it fails. Nothing here starts a process or opens a connection.
"""

import json
import math
import os
import sys

LEVELS = ("debug", "info", "warn", "error")
DELETIONS = {"Foreground": "Delete", "Background": "DeleteInBackground", "Orphan": "DeleteNonCascading"}

_config = None
_functions = []
_phase = None


class HookError(Exception):
    """Something that this file was asked to do makes no sense, or could not be done."""


# ---- what a hook is ----


def config(value):
    """Declares when the hook is to run: a dictionary, or YAML or JSON as text."""
    global _config
    _config = value if isinstance(value, str) else _json(value, "the configuration")


def on(name=None, *what):
    """Binds the function below to a binding, or to a group, or, without a name, to whatever nothing else is bound to.

    `what` narrows it: a type ("Synchronization", "Event", "Schedule", "Group", "Validating", ...), a change ("Added",
    "Modified", "Deleted") or the versions of a conversion ("v1alpha1->v1"). The narrowest function is called.
    """

    def bind(function):
        _functions.append((name, what, function))
        return function

    if callable(name):
        raise HookError("write @on() with brackets, and a binding name in them")
    return bind


def on_startup(function):
    """Binds the function below to the start of the operator."""
    return on("onStartup")(function)


def run(arguments=None):
    """Answers --config, or calls for each context the function bound to it. What a function raises ends the hook."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["--config"]:
        if _config is None:
            raise HookError("there is no configuration: call config() before run()")
        print(_config)
        return
    for context in contexts():
        _function_for(context)(context)


def contexts():
    """All contexts of this run, for hooks that do without on() and run()."""
    path = _path("BINDING_CONTEXT_PATH")
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError) as error:
        raise HookError("the binding context cannot be read: {}".format(error)) from error
    if not isinstance(found, list):
        raise HookError("the binding context is not a list")
    return found


def _function_for(context):
    kind, binding = context.get("type", ""), context.get("binding", "unknown")
    # The binding of a group context only tells who came last.
    name = context.get("groupName", binding) if kind == "Group" else binding
    versions = "{}->{}".format(context.get("fromVersion"), context.get("toVersion"))
    told = {kind, context.get("watchEvent"), versions}
    fitting = [
        (wanted is not None, bool(what), function)
        for wanted, what, function in _functions
        if wanted in (None, name) and (not what or told.intersection(what))
    ]
    if not fitting:
        raise HookError("no function for '{}' {}: bind one with @on({!r}), or with @on()".format(name, kind, name))
    # max() answers the first of equals, so among functions of one rank the first bound is called.
    return max(fitting, key=lambda entry: entry[:2])[2]


# ---- answers; the last one counts ----


def allow():
    """The request may pass."""
    _answer({"allowed": True})


def deny(message, code=None):
    """The request is refused and the user reads the message; the code is 403 unless given."""
    if code is None:
        return _answer({"allowed": False, "message": str(message)})
    if not isinstance(code, int) or not 100 <= code <= 599:
        raise HookError("deny: {!r} is not an HTTP status code".format(code))
    return _answer({"allowed": False, "status": {"code": code, "message": str(message)}})


def phase(name):
    """What follows belongs to this part of the work: "render", "syntax", "schema", "semantic", "tests", ..."""
    global _phase
    _phase = str(name)
    print("PHASE: {}".format(_phase), file=sys.stderr, flush=True)


def fail(message):
    """Ends the hook, from however deep; the request is refused and the user reads the message, if the binding has
    `errors: {from: marked}`. Without that the user reads the exit code and the message is in the log."""
    mark = "FAIL[{}]: ".format(_phase) if _phase else "FAIL: "
    for line in str(message).splitlines() or [""]:
        print(mark + line, file=sys.stderr, flush=True)
    raise SystemExit(1)


def warn(*texts):
    """The request may pass, and the user reads each text as a warning."""
    _answer({"allowed": True, "warnings": [str(text) for text in texts]})


def patch(operations):
    """The request may pass after these changes, a JSON Patch as a list. For mutating bindings only."""
    if not isinstance(operations, list):
        raise HookError("patch: a JSON Patch is a list of operations")
    _answer({"allowed": True, "patch": operations})


def converted(objects):
    """The objects of a conversion in the version asked for, as many as came and in the same order."""
    _write("CONVERSION_RESPONSE_PATH", {"convertedObjects": list(objects)}, "w")


def conversion_failed(message):
    """The objects cannot be converted; the user reads why."""
    _write("CONVERSION_RESPONSE_PATH", {"failedMessage": str(message)}, "w")


# ---- objects of the cluster; carried out in this order after the hook has ended well ----


def create(obj):
    """Creates the object; that it exists is an error."""
    _operation("Create", object=_named(obj))


def create_if_not_exists(obj):
    """Creates the object unless it exists."""
    _operation("CreateIfNotExists", object=_named(obj))


def create_or_update(obj):
    """Creates the object, or puts it in place of the one that exists."""
    _operation("CreateOrUpdate", object=_named(obj))


def apply(obj, field_manager=None, force=None):
    """Server-side apply: sets the given fields, leaves those of others alone."""
    _operation("Apply", object=_named(obj), fieldManager=field_manager, force=force)


def delete(kind, name, namespace=None, api_version=None, propagation="Foreground"):
    """Deletes an object; that it is gone already is fine. "Foreground" waits for the end, "Background" and "Orphan" do not."""
    if propagation not in DELETIONS:
        raise HookError("delete: propagation must be one of {}, not {!r}".format(", ".join(DELETIONS), propagation))
    _operation(DELETIONS[propagation], kind=kind, name=name, namespace=namespace, apiVersion=api_version)


def merge_patch(kind, name, patch, namespace=None, api_version=None, **more):
    """Changes an object by a merge patch. More: subresource="status", ignoreMissingObject=True, ignoreHookError=True."""
    _operation("MergePatch", kind=kind, name=name, namespace=namespace, apiVersion=api_version, mergePatch=patch, **more)


def json_patch(kind, name, patch, namespace=None, api_version=None, **more):
    """Changes an object by a JSON Patch, which is a list. More: as for merge_patch."""
    _operation("JSONPatch", kind=kind, name=name, namespace=namespace, apiVersion=api_version, jsonPatch=patch, **more)


def jq_patch(kind, name, jq, namespace=None, api_version=None, **more):
    """Changes an object to what a jq expression makes of it. More: as for merge_patch."""
    _operation("JQPatch", kind=kind, name=name, namespace=namespace, apiVersion=api_version, jqFilter=jq, **more)


# ---- metrics ----


def metric_set(name, value, labels=None, group=None):
    """A gauge has this value now."""
    _metric("set", name, value, labels, group)


def metric_add(name, value=1, labels=None, group=None):
    """A counter grows by this much."""
    _metric("add", name, value, labels, group)


def metric_observe(name, value, buckets, labels=None, group=None):
    """A histogram with these bucket bounds has seen this value."""
    _metric("observe", name, value, labels, group, buckets=list(buckets))


def metric_expire(group):
    """All metrics of the group are gone."""
    _write("METRICS_PATH", {"action": "expire", "group": group}, "a")


# ---- the log ----


def log(message, level="info", **fields):
    """Writes a line to the operator's log. A field `pod` is `hook_pod` there. Values that are no JSON become text."""
    if level not in LEVELS:
        raise HookError("log: the level must be one of {}, not {!r}".format(", ".join(LEVELS), level))
    line = dict(fields, level=level, msg=str(message))
    print(json.dumps(line, default=str), flush=True)


# ---- writing ----


def _named(obj):
    names = obj.get("metadata", {}) if isinstance(obj, dict) else {}
    if not (names.get("name") or names.get("generateName")) or not obj.get("kind") or not obj.get("apiVersion"):
        raise HookError("an object is a dictionary with apiVersion, kind and metadata.name")
    return obj


def _operation(operation, **fields):
    for field in ("kind", "name"):
        if field in fields and not (fields[field] and isinstance(fields[field], str)):
            raise HookError("{}: {} must be a text that is not empty".format(operation, field))
    document = {key: value for key, value in fields.items() if value is not None}
    _write("KUBERNETES_PATCH_PATH", dict(document, operation=operation), "a")


def _metric(action, name, value, labels, group, **more):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise HookError("metric '{}': the value must be a finite number, not {!r}".format(name, value))
    document = dict(more, action=action, name=name, value=value)
    # The operator takes only texts here, and a number is a natural thing to write.
    document["labels"] = {key: str(text) for key, text in (labels or {}).items()}
    if group is not None:
        document["group"] = group
    _write("METRICS_PATH", document, "a")


def _answer(document):
    _write("ADMISSION_RESPONSE_PATH", document, "w")


def _write(variable, document, mode):
    """One line of JSON. It is complete before the file is touched, so a value that is no JSON changes nothing."""
    line = _json(document, "what goes to " + variable) + "\n"
    path = _path(variable)
    try:
        with open(path, mode, encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        raise HookError("{} cannot be written: {}".format(variable, error)) from error


def _json(value, what):
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise HookError("{} cannot be written as JSON: {}".format(what, error)) from error


def _path(variable):
    path = os.environ.get(variable)
    if not path:
        raise HookError("{} is not set: the operator sets it; to try a hook by hand, let it name a file".format(variable))
    return path
