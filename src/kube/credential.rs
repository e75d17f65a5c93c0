//! What proves who we are, at the moment of a call: tokens, basic passwords, and what an `exec` plugin grants.
//!
//! Runs on the thread that makes the call. It owns the last known token of a token file and the last grant of a plugin, and
//! renews them: the file when it changed or the server said 401, the plugin when its grant expired or the server said 401.
//! It starts no process: the plugin is run by the function that the caller gave. No lock is held while files are read or a
//! plugin runs. Nothing here is ever logged.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::config::{Login, Secret, Token, read_file};
use super::error::Error;
use super::renewed::{Made, Renewed};

/// How often a token file is looked at. The kubelet renews a token 12 minutes before it ends, so any pace of seconds is in
/// time; five makes a rotation visible to a person who waits for it.
const TOKEN_FILE_PACE: Duration = Duration::from_secs(5);

/// How often a plugin may be run again because of a 401. A plugin that keeps giving a refused token would otherwise be run
/// for every call.
const EXEC_RENEWAL_PACE: Duration = Duration::from_secs(5);

/// LIMIT: the longest token. Tokens with many groups reach 16 KiB, and the API server's header limit is 1 MiB.
const TOKEN_LIMIT: usize = 512 * 1024;

/// Runs an `exec` plugin and gives back what it wrote to stdout.
pub(crate) type ExecRunner = Arc<dyn Fn(&ExecCommand) -> Result<Vec<u8>, String> + Send + Sync>;

/// An `exec` plugin: the process to run. The variables are added to the environment of the operator.
#[derive(Clone)]
pub(crate) struct ExecCommand {
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    version: ExecVersion,
    install_hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExecVersion {
    V1,
    V1Beta1,
}

/// What a plugin gave us.
struct Grant {
    token: Option<Secret>,
    certificate: Option<(Secret, Secret)>,
    expires: Option<jiff::Timestamp>,
}

/// The login of one client, shared by all its clones.
pub(super) struct Credentials {
    login: Login,
    run: ExecRunner,
    file: Mutex<FileToken>,
    grant: Renewed<Grant>,
    /// When a 401 last made the plugin run.
    forced: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct FileToken {
    token: Option<Secret>,
    stamp: Option<Stamp>,
    looked_at: Option<Instant>,
}

/// Tells one content of a file from the next without reading it. A swapped symlink changes the inode.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

/// What one call carries.
pub(super) struct Pass {
    pub(super) authorization: Option<Secret>,
    /// Certificate and key of a plugin, and the moment of its grant, which tells one pair from the next.
    pub(super) certificate: Option<(Secret, Secret, Instant)>,
}

impl Credentials {
    pub(super) fn new(login: Login, run: ExecRunner) -> Credentials {
        Credentials {
            login,
            run,
            file: Mutex::new(FileToken::default()),
            grant: Renewed::new(),
            forced: Mutex::new(None),
        }
    }

    pub(super) fn login(&self) -> &Login {
        &self.login
    }

    /// What to send now. A token of the configuration comes before that of a plugin, as in client-go.
    pub(super) fn pass(&self) -> Result<Pass, Error> {
        let grant = match &self.login.exec {
            Some(command) => Some(self.granted(command)?),
            None => None,
        };
        let token = match &self.login.token {
            Some(Token::Fixed(token)) => Some(token.clone()),
            Some(Token::File(path)) => Some(self.file_token(path)?),
            None => None,
        };
        let basic = self.login.basic.as_ref().map(|(name, password)| {
            Secret(format!(
                "Basic {}",
                STANDARD.encode(format!("{name}:{}", password.0))
            ))
        });
        let granted = grant.as_ref().and_then(|grant| grant.value.token.clone());
        Ok(Pass {
            authorization: token
                .or_else(|| if basic.is_none() { granted } else { None })
                .map(|token| token.bearer())
                .or(basic),
            certificate: grant.and_then(|grant| {
                let (certificate, key) = grant.value.certificate.clone()?;
                Some((certificate, key, grant.since))
            }),
        })
    }

    /// After a 401: true when there is something new to try with.
    pub(super) fn renew(&self, refused: &Pass) -> Result<bool, Error> {
        if let Some(Token::File(path)) = &self.login.token {
            self.forget_stamp();
            self.file_token(path)?;
        }
        if let Some(command) = &self.login.exec {
            let current = self.grant.current();
            // Another thread may have renewed it while our call was on its way.
            let same = current.as_ref().is_some_and(|grant| {
                let bearer = grant.value.token.as_ref().map(|token| token.bearer());
                bearer.is_none() || bearer == refused.authorization
            });
            if same && self.may_force() {
                let seen = current.map(|grant| grant.since);
                self.grant.renew(seen, || grant(command, &self.run))?;
            }
        }
        let now = self.pass()?;
        let since = |pass: &Pass| pass.certificate.as_ref().map(|(_, _, since)| *since);
        Ok(now.authorization != refused.authorization || since(&now) != since(refused))
    }

    fn granted(&self, command: &ExecCommand) -> Result<Made<Grant>, Error> {
        let current = self.grant.current();
        match current {
            Some(grant) if !grant.value.expired() => Ok(grant),
            stale => {
                let seen = stale.map(|grant| grant.since);
                self.grant.renew(seen, || grant(command, &self.run))
            }
        }
    }

    fn may_force(&self) -> bool {
        let mut forced = self.forced.lock().unwrap_or_else(PoisonError::into_inner);
        let soon = forced.is_some_and(|instant| instant.elapsed() < EXEC_RENEWAL_PACE);
        if !soon {
            *forced = Some(Instant::now());
        }
        !soon
    }

    fn forget_stamp(&self) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.looked_at = None;
        file.stamp = None;
    }

    /// The token of the file, read again when it changed. A file that cannot be read leaves the old token in use: it may still
    /// be good, and rotation swaps files in more than one step.
    fn file_token(&self, path: &Path) -> Result<Secret, Error> {
        let now = Instant::now();
        let (old, stamp) = {
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            let fresh = file
                .looked_at
                .is_some_and(|instant| now.duration_since(instant) < TOKEN_FILE_PACE);
            if let (true, Some(token)) = (fresh, &file.token) {
                return Ok(token.clone());
            }
            file.looked_at = Some(now);
            (file.token.clone(), file.stamp)
        };
        let seen = Stamp::of(path);
        if let (Some(old), true) = (&old, seen.is_some() && seen == stamp) {
            return Ok(old.clone());
        }
        match (read_token(path), old) {
            (Ok(token), _) => {
                let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
                file.token = Some(token.clone());
                file.stamp = seen;
                Ok(token)
            }
            (Err(_), Some(old)) => Ok(old),
            (Err(error), None) => Err(error),
        }
    }
}

fn read_token(path: &Path) -> Result<Secret, Error> {
    let bytes =
        read_file(path).map_err(|error| Error::Credential(format!("token file: {error}")))?;
    let text = String::from_utf8(bytes).unwrap_or_default();
    let token = text.trim();
    if token.is_empty() || token.len() > TOKEN_LIMIT || !token.bytes().all(|b| b.is_ascii_graphic())
    {
        return Err(Error::Credential(format!(
            "the file {} holds no token",
            path.display()
        )));
    }
    Ok(Secret(token.to_owned()))
}

impl Secret {
    fn bearer(&self) -> Secret {
        Secret(format!("Bearer {}", self.0))
    }
}

impl Stamp {
    pub(super) fn of(path: &Path) -> Option<Stamp> {
        let found = fs::metadata(path).ok()?;
        Some(Stamp {
            device: found.dev(),
            inode: found.ino(),
            length: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
        })
    }

    pub(super) fn all(paths: &[PathBuf]) -> Vec<Option<Stamp>> {
        paths.iter().map(|path| Stamp::of(path)).collect()
    }
}

impl Grant {
    fn expired(&self) -> bool {
        self.expires
            .is_some_and(|expires| jiff::Timestamp::now() >= expires)
    }
}

impl ExecVersion {
    fn name(self) -> &'static str {
        match self {
            ExecVersion::V1 => "client.authentication.k8s.io/v1",
            ExecVersion::V1Beta1 => "client.authentication.k8s.io/v1beta1",
        }
    }
}

impl ExecCommand {
    pub(super) fn new(
        command: String,
        args: Vec<String>,
        mut env: Vec<(String, String)>,
        version: ExecVersion,
        cluster: Option<Value>,
        install_hint: Option<String>,
    ) -> ExecCommand {
        let mut spec = json!({"interactive": false});
        if let (Some(cluster), Some(fields)) = (cluster, spec.as_object_mut()) {
            fields.insert("cluster".to_owned(), cluster);
        }
        let question = json!({
            "kind": "ExecCredential",
            "apiVersion": version.name(),
            "spec": spec,
        });
        env.push(("KUBERNETES_EXEC_INFO".to_owned(), question.to_string()));
        ExecCommand {
            command,
            args,
            env,
            version,
            install_hint,
        }
    }
}

impl fmt::Debug for ExecCommand {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ExecCommand({})", self.command)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecAnswer {
    kind: String,
    api_version: String,
    status: Option<ExecStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecStatus {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<String>,
}

/// Runs the plugin and reads its answer.
fn grant(command: &ExecCommand, run: &ExecRunner) -> Result<Grant, Error> {
    let wrong = |why: String| {
        let hint = command.install_hint.as_deref().unwrap_or_default();
        let hint = hint.split_whitespace().collect::<Vec<_>>().join(" ");
        let separator = if hint.is_empty() { "" } else { "; " };
        Error::Credential(format!(
            "exec plugin {}: {why}{separator}{hint}",
            command.command
        ))
    };
    let output = run(command).map_err(wrong)?;
    read_grant(&output, command.version).map_err(wrong)
}

fn read_grant(output: &[u8], version: ExecVersion) -> Result<Grant, String> {
    // The parser's own message could quote a token, so that only the place is named.
    let answer: ExecAnswer = serde_json::from_slice(output).map_err(|error| {
        format!(
            "its output is no ExecCredential (line {}, column {})",
            error.line(),
            error.column()
        )
    })?;
    if answer.kind != "ExecCredential" || answer.api_version != version.name() {
        return Err(format!(
            "it answered {} {}, expected ExecCredential {}",
            answer.api_version,
            answer.kind,
            version.name()
        ));
    }
    let status = answer.status.ok_or("its answer has no status".to_owned())?;
    let text = |value: Option<String>| value.filter(|text| !text.is_empty()).map(Secret);
    let token = text(status.token);
    let certificate = match (
        text(status.client_certificate_data),
        text(status.client_key_data),
    ) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err("it gave a client certificate or a key, but not both".to_owned()),
    };
    if token.is_none() && certificate.is_none() {
        return Err("it gave neither a token nor a client certificate".to_owned());
    }
    let expires = match status.expiration_timestamp.filter(|text| !text.is_empty()) {
        Some(text) => Some(
            text.parse::<jiff::Timestamp>()
                .map_err(|_| format!("its expirationTimestamp {text:?} is no RFC 3339 time"))?,
        ),
        None => None,
    };
    Ok(Grant {
        token,
        certificate,
        expires,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::kube::scripted::Folder;

    fn nothing_to_run() -> ExecRunner {
        Arc::new(|_| Err("not expected".to_owned()))
    }

    fn plugin() -> ExecCommand {
        ExecCommand::new(
            "get-token".to_owned(),
            Vec::new(),
            Vec::new(),
            ExecVersion::V1,
            None,
            Some("install get-token\nfrom somewhere".to_owned()),
        )
    }

    fn bearer(credentials: &Credentials) -> String {
        credentials.pass().unwrap().authorization.unwrap().0
    }

    #[test]
    fn a_token_file_is_read_again_after_a_401_and_kept_when_it_vanishes() {
        let folder = Folder::new();
        let path = folder.write("token", "one\n");
        let credentials = Credentials::new(
            Login {
                token: Some(Token::File(path.clone())),
                ..Login::default()
            },
            nothing_to_run(),
        );
        let first = credentials.pass().unwrap();
        assert_eq!(first.authorization.as_ref().unwrap().0, "Bearer one");
        assert!(!credentials.renew(&first).unwrap(), "the file is the same");
        folder.write("token", "two");
        assert_eq!(bearer(&credentials), "Bearer one", "not looked at so soon");
        assert!(credentials.renew(&first).unwrap());
        assert_eq!(bearer(&credentials), "Bearer two");
        fs::remove_file(&path).unwrap();
        let second = credentials.pass().unwrap();
        assert!(!credentials.renew(&second).unwrap());
        assert_eq!(bearer(&credentials), "Bearer two");
    }

    #[test]
    fn a_missing_or_empty_token_file_is_named() {
        let folder = Folder::new();
        for path in [folder.path().join("none"), folder.write("empty", " \n")] {
            let credentials = Credentials::new(
                Login {
                    token: Some(Token::File(path.clone())),
                    ..Login::default()
                },
                nothing_to_run(),
            );
            let error = credentials.pass().err().unwrap();
            assert!(error.to_string().contains(path.to_str().unwrap()));
            assert!(error.retryable());
        }
    }

    #[test]
    fn a_user_name_and_a_password_become_basic_authentication() {
        let credentials = Credentials::new(
            Login {
                basic: Some(("jane".to_owned(), Secret("pw".to_owned()))),
                ..Login::default()
            },
            nothing_to_run(),
        );
        assert_eq!(bearer(&credentials), "Basic amFuZTpwdw==");
    }

    #[test]
    fn a_plugin_runs_again_only_after_its_grant_expired() {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let run: ExecRunner = Arc::new(move |_| {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            let expires = if number == 0 {
                "2001-01-01T00:00:00Z"
            } else {
                "2999-01-01T00:00:00Z"
            };
            Ok(format!(
                r#"{{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{{"token":"t{number}","expirationTimestamp":"{expires}"}}}}"#
            )
            .into_bytes())
        });
        let credentials = Credentials::new(
            Login {
                exec: Some(plugin()),
                ..Login::default()
            },
            run,
        );
        assert_eq!(bearer(&credentials), "Bearer t0");
        assert_eq!(bearer(&credentials), "Bearer t1");
        assert_eq!(bearer(&credentials), "Bearer t1");
        assert_eq!(runs.load(Ordering::SeqCst), 2);
        let refused = credentials.pass().unwrap();
        assert!(credentials.renew(&refused).unwrap());
        let refused = credentials.pass().unwrap();
        assert!(
            !credentials.renew(&refused).unwrap(),
            "a plugin is not run for every call that is refused"
        );
        assert_eq!(runs.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn a_plugin_that_answers_wrongly_is_named_and_its_output_is_not() {
        for (output, expected) in [
            ("{\"token\": \"geheim\"", "no ExecCredential"),
            (
                r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1"}"#,
                "expected ExecCredential client.authentication.k8s.io/v1",
            ),
            (
                r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{}}"#,
                "neither a token nor a client certificate",
            ),
            (
                r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"clientKeyData":"geheim"}}"#,
                "not both",
            ),
            (
                r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"geheim","expirationTimestamp":"soon"}}"#,
                "\"soon\" is no RFC 3339 time",
            ),
        ] {
            let run: ExecRunner = Arc::new(move |_| Ok(output.as_bytes().to_vec()));
            let error = grant(&plugin(), &run).err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(error.contains("get-token") && error.contains("install get-token from"));
            assert!(!error.contains("geheim"), "{error}");
        }
    }

    #[test]
    fn a_plugin_is_told_the_version_and_that_nobody_is_there() {
        let command = plugin();
        let (name, value) = command.env.last().unwrap();
        assert_eq!(name, "KUBERNETES_EXEC_INFO");
        assert_eq!(
            serde_json::from_str::<Value>(value).unwrap(),
            json!({"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "spec": {"interactive": false}})
        );
        assert_eq!(format!("{command:?}"), "ExecCommand(get-token)");
    }
}
