#!/usr/bin/env python3
#
# Refuses ConfigMaps that hold webhook-e2e-test: webhook-disallow, on creation, change and deletion, except in
# namespaces labelled skip-webhook-admission=yes. Shows two conditions in one selector, that DELETE carries only the
# old object, and a refusal that gives a reason instead of a message.

import json
import os
import sys


def config():
    label = os.environ.get("AGNHOST_SELECTOR_LABEL", "webhook-e2e")
    return {
        "configVersion": "v1",
        "kubernetesValidating": [
            {
                "name": "configmaps.agnhost.example.com",
                "namespace": {
                    "labelSelector": {
                        "matchExpressions": [
                            {"key": label, "operator": "In", "values": ["true", "configmaps"]},
                            {"key": "skip-webhook-admission", "operator": "NotIn", "values": ["yes"]},
                        ]
                    }
                },
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "resources": ["configmaps"],
                        "operations": ["CREATE", "UPDATE", "DELETE"],
                    }
                ],
            }
        ],
    }


def answer(request):
    configmap = request["oldObject"] if request["operation"] == "DELETE" else request["object"]
    if (configmap.get("data") or {}).get("webhook-e2e-test") == "webhook-disallow":
        return {"allowed": False, "status": {"reason": "the configmap contains unwanted key and value"}}
    return {"allowed": True}


if sys.argv[1:] == ["--config"]:
    json.dump(config(), sys.stdout)
else:
    with open(os.environ["BINDING_CONTEXT_PATH"]) as file:
        request = json.load(file)[0]["review"]["request"]
    with open(os.environ["ADMISSION_RESPONSE_PATH"], "w") as file:
        json.dump(answer(request), file)
