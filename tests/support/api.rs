//! A client of the API server for tests that ask often: one connection that stays open, where kubectl needs a process for each
//! question. It asks as the administrator, and answers what came back without judging it.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use super::{Answer, Connection};

/// The API server, on a connection of one's own.
pub(crate) struct Api {
    address: SocketAddr,
    authority_pem: String,
    authorization: String,
    connection: Mutex<Option<Connection>>,
}

impl Api {
    pub(super) fn new(server: &str, authority_pem: String, token: &str) -> Api {
        let address = server.trim_start_matches("https://").parse().unwrap();
        Api {
            address,
            authority_pem,
            authorization: format!("Bearer {token}"),
            connection: Mutex::new(None),
        }
    }

    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "application/json", b"")
    }

    /// The object at this path, which must be there.
    #[track_caller]
    pub(crate) fn object(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }

    #[track_caller]
    pub(crate) fn create(&self, path: &str, object: &Value) -> Answer {
        self.ask(
            "POST",
            path,
            "application/json",
            object.to_string().as_bytes(),
        )
    }

    #[track_caller]
    pub(crate) fn replace(&self, path: &str, object: &Value) -> Answer {
        self.ask(
            "PUT",
            path,
            "application/json",
            object.to_string().as_bytes(),
        )
    }

    /// A merge patch.
    #[track_caller]
    pub(crate) fn merge(&self, path: &str, patch: &Value) -> Answer {
        let kind = "application/merge-patch+json";
        self.ask("PATCH", path, kind, patch.to_string().as_bytes())
    }

    /// A strategic merge patch, which is what `kubectl patch` sends.
    #[track_caller]
    pub(crate) fn strategic(&self, path: &str, patch: &Value) -> Answer {
        let kind = "application/strategic-merge-patch+json";
        self.ask("PATCH", path, kind, patch.to_string().as_bytes())
    }

    /// A JSON Patch.
    #[track_caller]
    pub(crate) fn json_patch(&self, path: &str, operations: &Value) -> Answer {
        let kind = "application/json-patch+json";
        self.ask("PATCH", path, kind, operations.to_string().as_bytes())
    }

    #[track_caller]
    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.ask("DELETE", path, "application/json", b"")
    }

    #[track_caller]
    fn ask(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> Answer {
        self.try_ask(method, path, kind, body)
            .unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// The same where the API server may be away.
    pub(crate) fn try_ask(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: &[u8],
    ) -> std::io::Result<Answer> {
        let headers = [
            ("Authorization", self.authorization.as_str()),
            ("Content-Type", kind),
            ("Accept", "application/json"),
        ];
        let mut kept = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // A kept connection may have died with its API server; a new one tells whether there is another.
        if let Some(mut connection) = kept.take()
            && let Ok(answer) = connection.request(method, path, &headers, body)
        {
            *kept = Some(connection);
            return Ok(answer);
        }
        let mut connection = Connection::tls(self.address, "127.0.0.1", &self.authority_pem, None)?;
        let answer = connection.request(method, path, &headers, body)?;
        *kept = Some(connection);
        Ok(answer)
    }
}
