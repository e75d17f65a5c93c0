#!/usr/bin/env python3
#
# Gives containers that ask for no CPU or memory a modest share of both, so that one pod can not starve a node.
# What the author of the pod has set stays; asked a second time, it changes nothing.
# Opt in with: kubectl label namespace <name> policy.example.com/enforce=true

import json
import os
import sys

CONFIG = {
    "configVersion": "v1",
    "kubernetesMutating": [
        {
            "name": "default-resources.policy.example.com",
            "namespace": {"labelSelector": {"matchLabels": {"policy.example.com/enforce": "true"}}},
            "rules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
            ],
        }
    ],
}

REQUESTS = {"cpu": "50m", "memory": "64Mi"}
LIMITS = {"memory": "256Mi"}


def with_defaults(resources):
    requests = resources.get("requests") or {}
    limits = resources.get("limits") or {}
    # A default beside a value of the author's own could contradict it, such as a limit below the request.
    untouched = [name for name in REQUESTS if name not in requests and name not in limits]
    if not untouched:
        return resources
    completed = dict(resources)
    completed["requests"] = {**{name: REQUESTS[name] for name in untouched}, **requests}
    default_limits = {name: LIMITS[name] for name in untouched if name in LIMITS}
    if default_limits or limits:
        completed["limits"] = {**default_limits, **limits}
    return completed


def patch(pod):
    operations = []
    for index, container in enumerate(pod["spec"]["containers"]):
        resources = container.get("resources") or {}
        completed = with_defaults(resources)
        if completed != resources:
            # "add" also replaces a member that is already there.
            path = f"/spec/containers/{index}/resources"
            operations.append({"op": "add", "path": path, "value": completed})
    return operations


if sys.argv[1:] == ["--config"]:
    json.dump(CONFIG, sys.stdout)
else:
    with open(os.environ["BINDING_CONTEXT_PATH"]) as file:
        request = json.load(file)[0]["review"]["request"]
    with open(os.environ["ADMISSION_RESPONSE_PATH"], "w") as file:
        json.dump({"allowed": True, "patch": patch(request["object"])}, file)
