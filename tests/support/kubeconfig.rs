//! Kubeconfig files of every shape that the program must read.
//!
//! One cluster, one user and one context called `test`. Written as JSON, which is YAML.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::Identity;

#[derive(Clone, Debug)]
pub(crate) struct Kubeconfig {
    cluster: Map<String, Value>,
    user: Map<String, Value>,
}

impl Kubeconfig {
    /// A server and nobody who asks it.
    pub(crate) fn new(server: &str) -> Kubeconfig {
        Kubeconfig {
            cluster: Map::new(),
            user: Map::new(),
        }
        .cluster("server", server)
    }

    /// A field of the cluster: `insecure-skip-tls-verify`, `tls-server-name`, `proxy-url`, …
    pub(crate) fn cluster(mut self, key: &str, value: impl Into<Value>) -> Kubeconfig {
        self.cluster.insert(key.to_owned(), value.into());
        self
    }

    /// A field of the user: `as`, `as-groups`, `username`, …
    pub(crate) fn user(mut self, key: &str, value: impl Into<Value>) -> Kubeconfig {
        self.user.insert(key.to_owned(), value.into());
        self
    }

    /// The authority that must have signed the server, inline.
    pub(crate) fn authority(self, pem: &str) -> Kubeconfig {
        self.cluster("certificate-authority-data", STANDARD.encode(pem))
    }

    pub(crate) fn token(self, token: &str) -> Kubeconfig {
        self.user("token", token)
    }

    pub(crate) fn token_file(self, path: &Path) -> Kubeconfig {
        self.user("tokenFile", path.to_string_lossy())
    }

    /// A client certificate, inline.
    pub(crate) fn client_certificate(self, identity: &Identity) -> Kubeconfig {
        self.user(
            "client-certificate-data",
            STANDARD.encode(&identity.certificate_pem),
        )
        .user("client-key-data", STANDARD.encode(&identity.key_pem))
    }

    /// A program that prints credentials.
    pub(crate) fn exec(self, program: &Path, arguments: &[&str]) -> Kubeconfig {
        self.user(
            "exec",
            json!({
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": program.to_string_lossy(),
                "args": arguments,
                "interactiveMode": "Never",
            }),
        )
    }

    /// Somebody else's name, if the user may use it.
    pub(crate) fn impersonate(self, user: &str, groups: &[&str]) -> Kubeconfig {
        self.user("as", user).user("as-groups", json!(groups))
    }

    pub(crate) fn text(&self) -> String {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "test", "cluster": self.cluster }],
            "users": [{ "name": "test", "user": self.user }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
            "current-context": "test",
        })
        .to_string()
    }
}
