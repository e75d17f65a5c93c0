#!/usr/bin/env python3
#
# Gives every pod a second container, made from the image in AGNHOST_SIDECAR_IMAGE. Shows a hook in Python without
# any library, and one that reports its own fault: with no image set it refuses with code 500, not 403.
# Being a nuisance, it is not among the hooks that the value "true" selects.

import json
import os
import sys

NAME = "webhook-added-sidecar"


def config():
    label = os.environ.get("AGNHOST_SELECTOR_LABEL", "webhook-e2e")
    return {
        "configVersion": "v1",
        "kubernetesMutating": [
            {
                "name": "mutate-pods-sidecar.agnhost.example.com",
                "namespace": {"labelSelector": {"matchLabels": {label: "mutate-pods-sidecar"}}},
                "rules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
                ],
            }
        ],
    }


def answer(request, image):
    if not image:
        message = "no image for the sidecar: set AGNHOST_SIDECAR_IMAGE in the environment of the operator"
        return {"allowed": False, "status": {"code": 500, "message": message}}
    containers = request["object"]["spec"]["containers"]
    if any(container["name"] == NAME for container in containers):
        return {"allowed": True}
    sidecar = {"name": NAME, "image": image, "resources": {}}
    return {"allowed": True, "patch": [{"op": "add", "path": "/spec/containers/-", "value": sidecar}]}


if sys.argv[1:] == ["--config"]:
    json.dump(config(), sys.stdout)
else:
    with open(os.environ["BINDING_CONTEXT_PATH"]) as file:
        request = json.load(file)[0]["review"]["request"]
    with open(os.environ["ADMISSION_RESPONSE_PATH"], "w") as file:
        json.dump(answer(request, os.environ.get("AGNHOST_SIDECAR_IMAGE", "")), file)
