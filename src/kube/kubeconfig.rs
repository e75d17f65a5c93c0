//! Kubeconfig files: the wire form, the merge of several, and the choice of one context.
//!
//! Pure but for reading the files; runs once at start. Of two files that define the same name the first wins, as in kubectl,
//! and a relative path is relative to the file that holds it. What we cannot honour (an old auth-provider, an interactive
//! plugin, a SOCKS proxy) is refused with a remedy, never left out in silence.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;

use super::config::{ClusterConfig, Login, Secret, Source, Trust, read_file, server_url};
use super::error::Error;
use super::login::login;
use crate::yaml;

/// Reads and merges the files, and takes the wanted context or the current one.
pub(super) fn load(
    files: &[PathBuf],
    context: Option<&str>,
    system: &[PathBuf],
) -> Result<ClusterConfig, Error> {
    let mut merged = Merged::default();
    for file in files {
        let bytes = read_file(file)?;
        let text = String::from_utf8(bytes).map_err(|_| {
            Error::Config(format!(
                "{} is not a kubeconfig: it is not text",
                file.display()
            ))
        })?;
        merged.add(file, &text)?;
    }
    let list = files
        .iter()
        .map(|file| file.display().to_string())
        .collect::<Vec<_>>()
        .join(", ");
    merged.choose(context, &list, system)
}

#[derive(Default)]
struct Merged {
    current: Option<String>,
    clusters: BTreeMap<String, Entry<Cluster>>,
    users: BTreeMap<String, Entry<User>>,
    contexts: BTreeMap<String, Entry<Place>>,
}

/// One named entry and the file it stands in.
pub(super) struct Entry<T> {
    pub(super) value: T,
    pub(super) file: PathBuf,
}

#[derive(Deserialize)]
struct Wire {
    #[serde(rename = "current-context")]
    current: Option<String>,
    clusters: Option<Vec<NamedCluster>>,
    users: Option<Vec<NamedUser>>,
    contexts: Option<Vec<NamedPlace>>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Option<Cluster>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: Option<User>,
}

#[derive(Deserialize)]
struct NamedPlace {
    name: String,
    context: Option<Place>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Cluster {
    pub(super) server: Option<String>,
    pub(super) certificate_authority: Option<String>,
    pub(super) certificate_authority_data: Option<String>,
    pub(super) tls_server_name: Option<String>,
    pub(super) insecure_skip_tls_verify: Option<bool>,
    pub(super) proxy_url: Option<String>,
    pub(super) extensions: Option<Vec<Extension>>,
}

#[derive(Deserialize)]
pub(super) struct Extension {
    pub(super) name: String,
    pub(super) extension: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub(super) struct User {
    pub(super) token: Option<String>,
    #[serde(rename = "tokenFile")]
    pub(super) token_file: Option<String>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) client_certificate: Option<String>,
    pub(super) client_certificate_data: Option<String>,
    pub(super) client_key: Option<String>,
    pub(super) client_key_data: Option<String>,
    #[serde(rename = "as")]
    pub(super) impersonate: Option<String>,
    pub(super) as_uid: Option<String>,
    pub(super) as_groups: Option<Vec<String>>,
    pub(super) as_user_extra: Option<BTreeMap<String, Vec<String>>>,
    pub(super) exec: Option<Exec>,
    pub(super) auth_provider: Option<AuthProvider>,
}

#[derive(Deserialize)]
pub(super) struct AuthProvider {
    pub(super) name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Exec {
    pub(super) api_version: Option<String>,
    pub(super) command: String,
    pub(super) args: Option<Vec<String>>,
    pub(super) env: Option<Vec<Variable>>,
    pub(super) install_hint: Option<String>,
    pub(super) provide_cluster_info: Option<bool>,
    pub(super) interactive_mode: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) value: String,
}

#[derive(Deserialize, Default)]
struct Place {
    cluster: Option<String>,
    user: Option<String>,
    namespace: Option<String>,
}

/// The fields that are no text.
const SWITCHES: [&str; 3] = [
    "insecure-skip-tls-verify",
    "provideClusterInfo",
    "disable-compression",
];

/// Values such as `token: 12345` or `value: false` are meant as text, and kubectl takes them so.
fn scalars_to_text(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(scalars_to_text),
        Value::Object(fields) => fields
            .iter_mut()
            .filter(|(key, _)| !SWITCHES.contains(&key.as_str()))
            .for_each(|(_, field)| scalars_to_text(field)),
        Value::Bool(_) | Value::Number(_) => *value = Value::String(value.to_string()),
        Value::Null | Value::String(_) => {}
    }
}

impl Merged {
    fn add(&mut self, file: &Path, text: &str) -> Result<(), Error> {
        if text.trim().is_empty() {
            return Ok(());
        }
        let refused = |error: String| {
            Error::Config(format!("{} is not a kubeconfig: {error}", file.display()))
        };
        let mut tree = yaml::parse_plain(text)
            .map_err(|error| refused(error.to_string()))?
            .to_value();
        scalars_to_text(&mut tree);
        let wire: Wire =
            serde_json::from_value(tree).map_err(|error| refused(error.to_string()))?;
        self.current = self
            .current
            .take()
            .or(wire.current)
            .filter(|name| !name.is_empty());
        for named in wire.clusters.unwrap_or_default() {
            keep(&mut self.clusters, named.name, named.cluster, file);
        }
        for named in wire.users.unwrap_or_default() {
            keep(&mut self.users, named.name, named.user, file);
        }
        for named in wire.contexts.unwrap_or_default() {
            keep(&mut self.contexts, named.name, named.context, file);
        }
        Ok(())
    }

    fn choose(
        &self,
        wanted: Option<&str>,
        files: &str,
        system: &[PathBuf],
    ) -> Result<ClusterConfig, Error> {
        let name = wanted.or(self.current.as_deref()).ok_or_else(|| {
            Error::Config(format!(
                "{files} sets no current-context; give --kube-context, one of: {}",
                names(&self.contexts)
            ))
        })?;
        let context = self.contexts.get(name).ok_or_else(|| {
            Error::Config(format!(
                "there is no context {name:?} in {files}; there is: {}",
                names(&self.contexts)
            ))
        })?;
        let place = &context.value;
        let cluster_name = place.cluster.as_deref().unwrap_or_default();
        let cluster = self.clusters.get(cluster_name).ok_or_else(|| {
            Error::Config(format!(
                "context {name:?} in {} names the cluster {cluster_name:?}, which does not exist; there is: {}",
                context.file.display(),
                names(&self.clusters)
            ))
        })?;
        let user_name = place.user.as_deref().unwrap_or_default();
        let login = match self.users.get(user_name) {
            Some(user) => login(user, user_name, cluster, cluster_name)?,
            // A context may have no user: that is a login as nobody.
            None if user_name.is_empty() => Login::default(),
            None => {
                return Err(Error::Config(format!(
                    "context {name:?} in {} names the user {user_name:?}, which does not exist; there is: {}",
                    context.file.display(),
                    names(&self.users)
                )));
            }
        };
        let mut config = cluster_config(cluster, cluster_name, &login, system)?;
        config.origin = format!("context {name:?} of {}", context.file.display());
        config.namespace = place.namespace.clone().filter(|text| !text.is_empty());
        config.login = login;
        Ok(config)
    }
}

/// The first file that defines a name wins.
fn keep<T: Default>(
    map: &mut BTreeMap<String, Entry<T>>,
    name: String,
    value: Option<T>,
    file: &Path,
) {
    map.entry(name).or_insert_with(|| Entry {
        value: value.unwrap_or_default(),
        file: file.to_owned(),
    });
}

fn names<T>(map: &BTreeMap<String, Entry<T>>) -> String {
    if map.is_empty() {
        return "none".to_owned();
    }
    map.keys().cloned().collect::<Vec<_>>().join(", ")
}

fn cluster_config(
    entry: &Entry<Cluster>,
    name: &str,
    login: &Login,
    system: &[PathBuf],
) -> Result<ClusterConfig, Error> {
    let cluster = &entry.value;
    let wrong = |why: String| {
        Error::Config(format!(
            "cluster {name:?} in {}: {why}",
            entry.file.display()
        ))
    };
    let authority = source(
        &entry.file,
        cluster.certificate_authority_data.as_deref(),
        cluster.certificate_authority.as_deref(),
        &format!("certificate-authority-data of cluster {name:?}"),
    )
    .map_err(wrong)?;
    let insecure = cluster.insecure_skip_tls_verify.unwrap_or(false);
    let encrypted = authority.is_some() || insecure || login.certificate.is_some();
    let trust = match authority {
        Some(_) if insecure => {
            return Err(wrong(
                "insecure-skip-tls-verify and a certificate authority exclude each other; remove one".to_owned(),
            ));
        }
        Some(authority) => Trust::Authority(authority),
        None if insecure => Trust::DangerAnyone,
        None => Trust::System(system.to_vec()),
    };
    let address = filled(cluster.server.as_deref())
        .ok_or_else(|| wrong("it has no server address".to_owned()))?;
    let server = server_url(address, encrypted)
        .map_err(|why| wrong(format!("server {address:?}: {why}")))?;
    let proxy = filled(cluster.proxy_url.as_deref()).map(str::to_owned);
    if let Some(proxy) = &proxy {
        let scheme = proxy.split_once("://").map(|(scheme, _)| scheme);
        if !matches!(scheme, Some("http" | "https")) {
            return Err(wrong(
                "proxy-url must begin with http:// or https://; SOCKS proxies are not supported"
                    .to_owned(),
            ));
        }
    }
    Ok(ClusterConfig {
        server,
        origin: String::new(),
        namespace: None,
        trust,
        tls_server_name: filled(cluster.tls_server_name.as_deref()).map(str::to_owned),
        proxy,
        login: Login::default(),
    })
}

/// Inline bytes win over a path, as in kubectl.
pub(super) fn source(
    file: &Path,
    inline: Option<&str>,
    path: Option<&str>,
    name: &str,
) -> Result<Option<Source>, String> {
    if let Some(inline) = filled(inline) {
        let compact: String = inline.split_whitespace().collect();
        let text = STANDARD
            .decode(compact)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .ok_or_else(|| format!("{name} is not a PEM file in base64"))?;
        return Ok(Some(Source::Inline {
            name: format!("{name} in {}", file.display()),
            bytes: Secret(text),
        }));
    }
    Ok(filled(path).map(|path| Source::File(beside(file, path))))
}

pub(super) fn beside(file: &Path, path: &str) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}

pub(super) fn filled(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::config::Token;
    use crate::kube::scripted::Folder;

    const CONTEXTS: &str = "
current-context: a
contexts:
- {name: a, context: {cluster: k, user: u, namespace: shop}}
- {name: b, context: {cluster: other, user: u}}
- {name: c, context: {cluster: k, user: ghost}}
";

    fn one(folder: &Folder, cluster: &str, user: &str) -> Result<ClusterConfig, Error> {
        let file = folder.write(
            "config",
            &format!(
                "{CONTEXTS}\nclusters:\n- name: k\n  cluster: {cluster}\nusers:\n- name: u\n  user: {user}\n"
            ),
        );
        load(&[file], None, &[])
    }

    fn refused(cluster: &str, user: &str) -> String {
        one(&Folder::new(), cluster, user).unwrap_err().to_string()
    }

    #[test]
    fn of_two_files_the_first_wins_by_name_and_paths_are_relative_to_their_file() {
        let folder = Folder::new();
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        let first = folder.write(
            "first",
            "clusters: [{name: k, cluster: {server: 'https://first', certificate-authority: ca.crt}}]\nusers: null\n",
        );
        let second = folder.write(
            "sub/second",
            &format!(
                "{CONTEXTS}\nclusters: [{{name: k, cluster: {{server: 'https://second'}}}}]\nusers: [{{name: u, user: {{tokenFile: tok, token: x}}}}]\n"
            ),
        );
        let third = folder.write("third", "current-context: nowhere\n");
        let empty = folder.write("empty", "");
        let config = load(&[empty, first, second, third], None, &[]).unwrap();
        assert_eq!(config.server, "https://first");
        assert_eq!(config.namespace.as_deref(), Some("shop"));
        assert!(config.origin.contains("\"a\"") && config.origin.contains("second"));
        assert!(
            matches!(&config.trust, Trust::Authority(Source::File(path)) if *path == folder.path().join("ca.crt"))
        );
        assert!(
            matches!(&config.login.token, Some(Token::File(path)) if *path == folder.path().join("sub/tok"))
        );
    }

    #[test]
    fn missing_names_are_answered_with_the_names_that_exist() {
        let folder = Folder::new();
        let file = folder.write(
            "config",
            &format!("{CONTEXTS}\nclusters: [{{name: k, cluster: {{server: a}}}}]\nusers: [{{name: u, user: {{}}}}]\n"),
        );
        for (context, expected) in [
            ("z", "there is no context \"z\""),
            ("z", "there is: a, b, c"),
            (
                "b",
                "names the cluster \"other\", which does not exist; there is: k",
            ),
            (
                "c",
                "names the user \"ghost\", which does not exist; there is: u",
            ),
        ] {
            let error = load(std::slice::from_ref(&file), Some(context), &[])
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(expected) && error.contains("config"),
                "{error}"
            );
        }
        let none = folder.write("none", "contexts: [{name: x, context: {}}]\n");
        let error = load(&[none], None, &[]).unwrap_err().to_string();
        assert!(error.contains("--kube-context, one of: x"), "{error}");
        let broken = folder.write("broken", "clusters:\n- name: [\n");
        let error = load(&[broken], None, &[]).unwrap_err().to_string();
        assert!(
            error.contains("broken is not a kubeconfig: line"),
            "{error}"
        );
    }

    #[test]
    fn a_cluster_says_whom_it_trusts_and_how_it_is_reached() {
        let folder = Folder::new();
        let config = one(
            &folder,
            "{server: 'host:6443', certificate-authority-data: aGVsbG8=, tls-server-name: kubernetes, proxy-url: 'http://proxy:3128'}",
            "{}",
        )
        .unwrap();
        assert_eq!(config.server, "https://host:6443");
        assert_eq!(config.tls_server_name.as_deref(), Some("kubernetes"));
        assert_eq!(config.proxy.as_deref(), Some("http://proxy:3128"));
        let Trust::Authority(source) = &config.trust else {
            panic!("no authority");
        };
        assert_eq!(source.read().unwrap(), b"hello");
        assert!(
            source
                .name()
                .contains("certificate-authority-data of cluster \"k\"")
        );
        let config = one(
            &folder,
            "{server: host, insecure-skip-tls-verify: true}",
            "{}",
        )
        .unwrap();
        assert!(matches!(config.trust, Trust::DangerAnyone));
        assert_eq!(config.server, "https://host");
        let config = one(&folder, "{server: 'localhost:8080'}", "{}").unwrap();
        assert_eq!(config.server, "http://localhost:8080");

        for (cluster, expected) in [
            ("{}", "cluster \"k\""),
            (
                "{server: a, insecure-skip-tls-verify: true, certificate-authority: x}",
                "exclude each other",
            ),
            (
                "{server: a, certificate-authority-data: '%%'}",
                "is not a PEM file in base64",
            ),
            (
                "{server: a, proxy-url: 'socks5://p:1'}",
                "SOCKS proxies are not supported",
            ),
            ("{server: 'ftp://a'}", "neither https nor http"),
        ] {
            let error = refused(cluster, "{}");
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_user_logs_in_by_what_it_has() {
        let folder = Folder::new();
        let login = |user: &str| one(&folder, "{server: a}", user).unwrap().login;
        assert!(
            matches!(login("{token: abc}").token, Some(Token::Fixed(Secret(token))) if token == "abc")
        );
        let (name, password) = login("{username: jane, password: pw}").basic.unwrap();
        assert_eq!((name.as_str(), password.0.as_str()), ("jane", "pw"));
        let (certificate, key) = login("{client-certificate: c.pem, client-key-data: a2V5}")
            .certificate
            .unwrap();
        assert_eq!(
            certificate.name(),
            folder.path().join("c.pem").display().to_string()
        );
        assert_eq!(key.read().unwrap(), b"key");
        assert_eq!(
            login("{as: bob, as-uid: '7', as-groups: [x, y], as-user-extra: {a/B: [v]}}")
                .impersonation,
            [
                ("Impersonate-User", "bob"),
                ("Impersonate-Uid", "7"),
                ("Impersonate-Group", "x"),
                ("Impersonate-Group", "y"),
                ("Impersonate-Extra-a%2Fb", "v"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        for (user, expected) in [
            ("{token: a, username: b}", "exclude each other"),
            ("{client-certificate: c}", "no client-key"),
            ("{client-key: c}", "no client-certificate"),
            ("{as-groups: [x]}", "need as"),
            (
                "{auth-provider: {name: gcp}}",
                "the auth-provider \"gcp\" is no longer supported",
            ),
            (
                "{exec: {command: p, apiVersion: client.authentication.k8s.io/v1alpha1}}",
                "v1alpha1",
            ),
            (
                "{exec: {command: p, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Always}}",
                "needs a terminal",
            ),
        ] {
            let error = refused("{server: a}", user);
            assert!(
                error.contains(expected) && error.contains("user \"u\""),
                "{error}"
            );
        }
    }

    #[test]
    fn a_plugin_is_found_beside_the_file_and_told_of_the_cluster_when_it_asks() {
        let folder = Folder::new();
        let config = one(
            &folder,
            "{server: 'https://a', certificate-authority-data: aGVsbG8=, extensions: [{name: client.authentication.k8s.io/exec, extension: {audience: x}}]}",
            "{exec: {command: ./bin/p, args: [q], env: [{name: N, value: V}], apiVersion: client.authentication.k8s.io/v1, interactiveMode: IfAvailable, provideClusterInfo: true}}",
        )
        .unwrap();
        let exec = config.login.exec.unwrap();
        assert_eq!(
            exec.command,
            folder.path().join("./bin/p").display().to_string()
        );
        assert_eq!(exec.args, ["q"]);
        assert_eq!(exec.env[0], ("N".to_owned(), "V".to_owned()));
        let question: Value = serde_json::from_str(&exec.env[1].1).unwrap();
        assert_eq!(
            question["spec"],
            serde_json::json!({
                "interactive": false,
                "cluster": {"server": "https://a", "certificate-authority-data": "aGVsbG8=", "config": {"audience": "x"}},
            })
        );
        let bare = one(
            &folder,
            "{server: a}",
            "{exec: {command: p, apiVersion: client.authentication.k8s.io/v1beta1}}",
        );
        assert_eq!(bare.unwrap().login.exec.unwrap().command, "p");
    }
}
