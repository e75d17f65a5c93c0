#!/usr/bin/env python3
#
# Refuses Ingresses and Services that would leave HAProxy without a working configuration. The configuration is rendered from the
# cluster as it would be (overlay), checked by a real `haproxy -c`, and held against the tests in tests.json beside this file, or in
# the file that HAPROXY_TESTS names. A user reads one sentence: what is wrong, in which phase it was found is in the audit log.
# Opt in with: kubectl label namespace <name> policy.example.com/enforce=true
# Needs Python 3.7 and, on Debian, the package haproxy.

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# The directory of hooks is often read-only.
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
import shell_operator as hook  # noqa: E402

BINDING = "ingress.haproxy.example.com"
OPT_IN = "policy.example.com/enforce"
ANNOTATION = "haproxy.example.com/"
CHECK_SECONDS = 30
TEST_SECONDS = 60
# Characters of a path that mean nothing to HAProxy's own grammar.
PLAIN_PATH = re.compile(r"/[A-Za-z0-9._~/%+=:@!&*,;-]*\Z")
PLAIN_WORDS = re.compile(r"[A-Za-z0-9._:/ (),-]+\Z")

SNAPSHOTS = {
    "ingresses": (
        "networking.k8s.io/v1",
        "Ingress",
        "{namespace: .metadata.namespace, name: .metadata.name, annotations: (.metadata.annotations // {}), rules: (.spec.rules // [])}",
    ),
    "services": (
        "v1",
        "Service",
        "{namespace: .metadata.namespace, name: .metadata.name, ip: .spec.clusterIP, ports: [.spec.ports[]? | {name, port}]}",
    ),
    "slices": (
        "discovery.k8s.io/v1",
        "EndpointSlice",
        '{namespace: .metadata.namespace, service: .metadata.labels["kubernetes.io/service-name"],'
        " ports: [.ports[]? | {name, port}],"
        " addresses: [.endpoints[]? | select(.conditions.ready != false) | .addresses[]]}",
    ),
}

hook.config(
    {
        "configVersion": "v1",
        "kubernetes": [
            {
                "name": name,
                "apiVersion": version,
                "kind": kind,
                "jqFilter": jq,
                "keepFullObjectsInMemory": False,
                "executeHookOnEvent": [],
                "executeHookOnSynchronization": False,
                "namespace": {"labelSelector": {"matchLabels": {OPT_IN: "true"}}},
            }
            for name, (version, kind, jq) in SNAPSHOTS.items()
        ],
        "kubernetesValidating": [
            {
                "name": BINDING,
                "namespace": {"labelSelector": {"matchLabels": {OPT_IN: "true"}}},
                "includeSnapshotsFrom": list(SNAPSHOTS),
                "overlay": True,
                "errors": {"from": "marked", "filters": {"syntax": ["haproxy"]}},
                "timeoutSeconds": 30,
                "rules": [
                    {
                        "apiGroups": [group],
                        "apiVersions": ["v1"],
                        "resources": [resource],
                        "operations": ["CREATE", "UPDATE", "DELETE"],
                    }
                    for group, resource in (("networking.k8s.io", "ingresses"), ("", "services"))
                ],
            }
        ],
    }
)


class RenderError(Exception):
    """The objects cannot be made a configuration; the text is for the user."""


# ---- render ----


def render(objects):
    """The configuration for these ingresses, services and slices."""
    routes, backends, seen = [], {}, {}
    for ingress in sorted(objects["ingresses"], key=lambda one: (one["namespace"], one["name"])):
        for rule in ingress["rules"]:
            for path in rule.get("http", {}).get("paths", []):
                name, lines = backend(ingress, path.get("backend", {}).get("service"), objects)
                backends[name] = lines
                route(ingress, rule.get("host", ""), path, name, seen, routes)
    # The longest path first: HAProxy takes the first that fits.
    routes.sort(key=lambda one: (one[0], -len(one[1]), one[1]))
    text = ["global", "defaults", "  mode http"]
    text += ["  timeout {} 5s".format(name) for name in ("connect", "client", "server")]
    text += ["frontend http", "  bind 127.0.0.1:8080"] + [line for _, _, line in routes]
    text += ["  default_backend none", "backend none", "  http-request return status 404"]
    for name in sorted(backends):
        text += ["backend " + name] + backends[name]
    return "\n".join(text) + "\n"


def route(ingress, host, path, name, seen, routes):
    where = path.get("path") or "/"
    exact = path.get("pathType") == "Exact"
    if not PLAIN_PATH.match(where):
        raise RenderError("path '{}' of Ingress '{}' has characters that HAProxy would misread".format(where, ingress["name"]))
    key = (host, where, exact)
    other = seen.setdefault(key, ingress["name"])
    if other != ingress["name"]:
        raise RenderError("host '{}' with path '{}' is in Ingress '{}' and in Ingress '{}'".format(host, where, other, ingress["name"]))
    conditions = []
    if host.startswith("*."):
        conditions.append("{{ req.hdr(host),field(1,:) -m end -i {} }}".format(host[1:]))
    elif host:
        conditions.append("{{ req.hdr(host),field(1,:) -i {} }}".format(host))
    conditions.append("{{ {} {} }}".format("path" if exact else "path_beg", where))
    routes.append((host == "", where, "  use_backend {} if {}".format(name, " ".join(conditions))))


def backend(ingress, wanted, objects):
    """Name and lines of the backend for a Service that an Ingress wants."""
    if not wanted:
        raise RenderError("Ingress '{}' has a path without a Service".format(ingress["name"]))
    same = lambda one, key: one["namespace"] == ingress["namespace"] and one[key] == wanted["name"]  # noqa: E731
    service = next((one for one in objects["services"] if same(one, "name")), None)
    if service is None:
        raise RenderError("Service '{}' not found".format(wanted["name"]))
    port = port_of(service, wanted.get("port") or {})
    name = "_".join([ingress["namespace"], ingress["name"], service["name"], str(port["port"])])
    lines = options(ingress)
    limit = [line for line in lines if line.startswith("maxconn ")]
    servers = []
    for part in objects["slices"]:
        if same(part, "service"):
            ports = [one["port"] for one in part["ports"] if (one.get("name") or "") == (port.get("name") or "")]
            servers += ["{}:{}".format(address, number) for address in part["addresses"] for number in ports]
    if not servers and service.get("ip") not in (None, "", "None"):
        servers = ["{}:{}".format(service["ip"], port["port"])]
    text = ["  " + line for line in lines if line not in limit]
    for index, server in enumerate(sorted(set(servers))):
        text.append("  server s{} {}{}".format(index, server, "".join(" " + line for line in limit)))
    return name, text


def port_of(service, wanted):
    shown = wanted.get("name") or wanted.get("number")
    found = [one for one in service["ports"] if shown in (one.get("name"), one.get("port"))]
    if not found:
        raise RenderError("Service '{}' has no port '{}'".format(service["name"], shown))
    # HAProxy 2.6 takes 80.0 without a word.
    if isinstance(found[0]["port"], bool) or not isinstance(found[0]["port"], int):
        raise RenderError("port {} of Service '{}' is not a whole number".format(found[0]["port"], service["name"]))
    return found[0]


def options(ingress):
    """Lines of a backend that annotations ask for. What they say is HAProxy's to judge, as long as it is one line."""
    lines = []
    for key, keyword in (("balance", "balance"), ("timeout-server", "timeout server"), ("maxconn", "maxconn")):
        value = ingress["annotations"].get(ANNOTATION + key)
        if value is None:
            continue
        if not PLAIN_WORDS.match(value):
            raise RenderError("annotation {} of Ingress '{}' has characters that HAProxy would misread".format(ANNOTATION + key, ingress["name"]))
        # HAProxy 2.6 takes any word for a number here.
        if key == "maxconn" and not value.isdigit():
            raise RenderError("annotation {} of Ingress '{}' is not a number".format(ANNOTATION + key, ingress["name"]))
        lines.append("{} {}".format(keyword, value))
    return lines


# ---- syntax ----


def check(configuration, seconds):
    """Exit status and standard error of `haproxy -c`, in a directory of its own."""
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "haproxy.cfg"), "w", encoding="utf-8") as file:
            file.write(configuration)
        done = subprocess.run(
            ["haproxy", "-c", "-f", "haproxy.cfg"], cwd=directory, timeout=seconds, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
        )
    return done.returncode, done.stderr


def warnings_in(stderr):
    found = [line.split(" : config : ", 1)[1] for line in stderr.splitlines() if line.startswith("[WARNING]") and " : config : " in line]
    return [re.sub(r"^([Pp]arsing )?\[[^]]*\] ?: ?", "", text) for text in found]


# ---- tests ----


def run_tests(tests, configuration, seconds):
    """One after the other, all of them within the time. Answers the failures: the names of tests, and what is wrong."""
    until = time.monotonic() + seconds
    failures = []
    for name in sorted(tests):
        test = tests[name]
        try:
            rendered, error = configuration, None
            if "fixtures" in test:
                rendered = render({kind: test["fixtures"].get(kind, []) for kind in SNAPSHOTS})
        except RenderError as problem:
            rendered, error = "", str(problem)
        expected = [one for one in test["assertions"] if one["type"] == "rendering_error"]
        if error and not expected:
            failures.append((name, "render: " + error))
            continue
        for assertion in test["assertions"]:
            remaining = until - time.monotonic()
            try:
                if remaining <= 0:
                    raise subprocess.TimeoutExpired("haproxy", seconds)
                problem = judge(assertion, rendered, error, remaining)
            except subprocess.TimeoutExpired:
                hook.fail("tests did not end within {} s; test '{}' was cancelled".format(seconds, name))
            if problem:
                failures.append((name, "{}: {}".format(assertion.get("description", assertion["type"]), problem)))
    return failures


def judge(assertion, rendered, error, seconds):
    """What is wrong, or nothing."""
    kind, pattern = assertion["type"], assertion.get("pattern", "")
    found = len(re.findall(pattern, rendered, re.MULTILINE))
    if kind == "haproxy_valid":
        status, stderr = check(rendered, seconds)
        alerts = [line for line in stderr.splitlines() if line.startswith("[ALERT]")]
        return None if status == 0 else "haproxy: " + (alerts[0].split(" : config : ", 1)[-1] if alerts else "status {}".format(status))
    if kind == "contains":
        return None if found else "'{}' is not there".format(pattern)
    if kind == "not_contains":
        return "'{}' is there".format(pattern) if found else None
    if kind == "match_count":
        return None if found == assertion["count"] else "'{}' is there {} times and not {}".format(pattern, found, assertion["count"])
    if kind == "rendering_error":
        return None if error and re.search(pattern, error) else "rendering gave {!r}".format(error)
    return "there is no assertion '{}'".format(kind)


# ---- the review ----


@hook.on(BINDING)
def review(context):
    if not shutil.which("haproxy"):
        hook.phase("setup")
        hook.fail("the hook cannot check anything: the program haproxy is not installed where the operator runs")
    objects = {kind: [one["filterResult"] for one in context["snapshots"][kind]] for kind in SNAPSHOTS}

    hook.phase("render")
    began = time.monotonic()
    try:
        configuration = render(objects)
    except RenderError as problem:
        hook.fail(problem)

    hook.phase("syntax")
    try:
        status, stderr = check(configuration, CHECK_SECONDS - (time.monotonic() - began))
    except subprocess.TimeoutExpired:
        hook.fail("rendering and checking did not end within {} s".format(CHECK_SECONDS))
    if status == 2:
        hook.fail("the configuration has no listener")
    if status != 0:
        hook.fail(stderr)

    hook.phase("tests")
    with open(os.environ.get("HAPROXY_TESTS") or os.path.join(HERE, "tests.json"), encoding="utf-8") as file:
        tests = json.load(file)
    seconds = float(os.environ.get("HAPROXY_TEST_SECONDS") or TEST_SECONDS)
    failures = run_tests(tests, configuration, int(seconds) if seconds == int(seconds) else seconds)
    if failures:
        lines = ["{} of {} tests failed".format(len({name for name, _ in failures}), len(tests))]
        hook.fail("\n".join(lines + ["test '{}': {}".format(name, text) for name, text in failures]))
    hook.warn(*warnings_in(stderr))


hook.run()
