//! Which cluster, and who we are there: from flags, the environment, kubeconfig files or the files of a pod.
//!
//! Runs once at start, on the main thread. The order is that of the original: `--kube-config`, `KUBECONFIG`,
//! `~/.kube/config`, in-cluster. A file that was asked for and is missing is an error and never a silent step to the next
//! source, because acting on the wrong cluster is worse than not starting. It opens no socket. Certificates and tokens that
//! live in files are kept as paths, so that the client can read them again when they rotate.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::credential::ExecCommand;
use super::error::Error;
use super::kubeconfig;

/// LIMIT: the longest kubeconfig, certificate bundle or token file that is read. System bundles are about 250 KiB, and a
/// kubeconfig for a hundred clusters about 1 MiB.
pub(super) const FILE_LIMIT: u64 = 8 * 1024 * 1024;

/// Bundles of public certificate authorities, used like in Go when a cluster names no authority of its own.
const SYSTEM_BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// What the command line asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) kube_config: Option<&'a Path>,
    pub(crate) context: Option<&'a str>,
    pub(crate) server: Option<&'a str>,
    /// Where a pod finds token, CA and namespace of its service account.
    pub(crate) service_account_dir: &'a Path,
}

/// A cluster and a way to log in to it.
#[derive(Clone)]
pub(crate) struct ClusterConfig {
    /// Scheme, host, port and path prefix, without a slash at the end.
    pub(crate) server: String,
    /// Where this came from, for messages: a file and a context, or the pod.
    pub(crate) origin: String,
    /// The namespace of the context or of the pod.
    pub(crate) namespace: Option<String>,
    pub(super) trust: Trust,
    pub(super) tls_server_name: Option<String>,
    pub(super) proxy: Option<String>,
    pub(super) login: Login,
}

/// Whose signature on the server's certificate is accepted.
#[derive(Clone)]
pub(super) enum Trust {
    Authority(Source),
    /// The first of these files that exists.
    System(Vec<PathBuf>),
    /// `insecure-skip-tls-verify`.
    DangerAnyone,
}

/// Everything that tells the server who we are. Several may be set.
#[derive(Clone, Default)]
pub(super) struct Login {
    pub(super) token: Option<Token>,
    pub(super) basic: Option<(String, Secret)>,
    pub(super) certificate: Option<(Source, Source)>,
    pub(super) exec: Option<ExecCommand>,
    pub(super) impersonation: Vec<(String, String)>,
}

#[derive(Clone)]
pub(super) enum Token {
    Fixed(Secret),
    File(PathBuf),
}

/// Bytes of a certificate, a bundle or a key.
#[derive(Clone)]
pub(super) enum Source {
    File(PathBuf),
    /// The name says which field of which file the bytes come from.
    Inline {
        name: String,
        bytes: Secret,
    },
}

/// Text that no log may show.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(pub(super) String);

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(secret)")
    }
}

impl fmt::Debug for ClusterConfig {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ClusterConfig({} from {})", self.server, self.origin)
    }
}

impl Source {
    pub(super) fn name(&self) -> String {
        match self {
            Source::File(path) => path.display().to_string(),
            Source::Inline { name, .. } => name.clone(),
        }
    }

    pub(super) fn read(&self) -> Result<Vec<u8>, Error> {
        match self {
            Source::File(path) => read_file(path),
            Source::Inline { bytes, .. } => Ok(bytes.0.clone().into_bytes()),
        }
    }
}

impl ClusterConfig {
    /// Finds and reads the configuration. `env` gives the value of an environment variable.
    pub(crate) fn load(
        wanted: &Wanted<'_>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<ClusterConfig, Error> {
        let variable = |name: &str| env(name).filter(|value| !value.is_empty());
        let system = system_bundles(variable("SSL_CERT_FILE"));
        let mut config = match kubeconfig_files(wanted, &variable)? {
            Some(files) => kubeconfig::load(&files, wanted.context, &system)?,
            None => without_kubeconfig(wanted, &variable, system)?,
        };
        if let Some(server) = wanted.server {
            let encrypted = !matches!(config.trust, Trust::System(_));
            config.server = server_url(server, encrypted)
                .map_err(|why| Error::Config(format!("--kube-server {server:?}: {why}")))?;
        }
        Ok(config)
    }

    /// A server without TLS and without a login, for tests.
    #[cfg(test)]
    pub(crate) fn plain(server: &str) -> ClusterConfig {
        ClusterConfig {
            server: server.to_owned(),
            origin: "a test".to_owned(),
            namespace: None,
            trust: Trust::System(Vec::new()),
            tls_server_name: None,
            proxy: None,
            login: Login::default(),
        }
    }
}

/// The kubeconfig files to merge, or None when nothing names one.
fn kubeconfig_files(
    wanted: &Wanted<'_>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Vec<PathBuf>>, Error> {
    if let Some(path) = wanted.kube_config {
        if !path.exists() {
            return Err(Error::Config(format!(
                "--kube-config is {path:?} but there is no such file; correct it or leave it out"
            )));
        }
        return Ok(Some(vec![path.to_owned()]));
    }
    if let Some(list) = variable("KUBECONFIG") {
        let named: Vec<PathBuf> = std::env::split_paths(&list)
            .filter(|path| !path.as_os_str().is_empty())
            .collect();
        let present: Vec<PathBuf> = named.into_iter().filter(|path| path.exists()).collect();
        if present.is_empty() {
            return Err(Error::Config(format!(
                "KUBECONFIG is {list:?} but there is no such file; correct or unset it"
            )));
        }
        return Ok(Some(present));
    }
    let home = variable("HOME").map(|home| Path::new(&home).join(".kube").join("config"));
    Ok(home.filter(|path| path.exists()).map(|path| vec![path]))
}

fn without_kubeconfig(
    wanted: &Wanted<'_>,
    variable: &dyn Fn(&str) -> Option<String>,
    system: Vec<PathBuf>,
) -> Result<ClusterConfig, Error> {
    if let Some(context) = wanted.context {
        return Err(Error::Config(format!(
            "--kube-context {context:?} needs a kubeconfig and there is none; give --kube-config or set KUBECONFIG"
        )));
    }
    match (
        variable("KUBERNETES_SERVICE_HOST"),
        variable("KUBERNETES_SERVICE_PORT"),
    ) {
        (Some(host), Some(port)) => in_cluster(&host, &port, wanted.service_account_dir),
        _ if wanted.server.is_some() => Ok(ClusterConfig {
            server: String::new(),
            origin: "--kube-server".to_owned(),
            namespace: None,
            trust: Trust::System(system),
            tls_server_name: None,
            proxy: None,
            login: Login::default(),
        }),
        _ => Err(Error::Config(
            "no cluster is configured: give --kube-config, set KUBECONFIG, create ~/.kube/config, or run in a pod \
             (KUBERNETES_SERVICE_HOST is not set)"
                .to_owned(),
        )),
    }
}

/// The configuration that Kubernetes gives to every pod.
fn in_cluster(host: &str, port: &str, dir: &Path) -> Result<ClusterConfig, Error> {
    let token = dir.join("token");
    let authority = dir.join("ca.crt");
    for path in [&token, &authority] {
        if !path.exists() {
            return Err(Error::Config(format!(
                "this looks like a pod (KUBERNETES_SERVICE_HOST is set) but {} is missing; set automountServiceAccountToken: true or give --kube-config",
                path.display()
            )));
        }
    }
    let namespace = fs::read_to_string(dir.join("namespace"))
        .ok()
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty());
    // An IPv6 address stands in brackets in a URL, and the variable has none.
    let address = if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    let server = server_url(&format!("https://{address}:{port}"), true).map_err(|why| {
        Error::Config(format!(
            "KUBERNETES_SERVICE_HOST {host:?} and KUBERNETES_SERVICE_PORT {port:?} make no address: {why}"
        ))
    })?;
    Ok(ClusterConfig {
        server,
        origin: "the service account of this pod".to_owned(),
        namespace,
        trust: Trust::Authority(Source::File(authority)),
        tls_server_name: None,
        proxy: None,
        login: Login {
            token: Some(Token::File(token)),
            ..Login::default()
        },
    })
}

/// Brings a server address into the form `scheme://host[:port][/prefix]`. Without a scheme it is `https` when the
/// configuration speaks of certificates, as in client-go.
pub(super) fn server_url(text: &str, encrypted: bool) -> Result<String, String> {
    let text = text.trim();
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
        None if encrypted => ("https".to_owned(), text),
        None => ("http".to_owned(), text),
    };
    if scheme != "https" && scheme != "http" {
        return Err(format!("the scheme {scheme:?} is neither https nor http"));
    }
    let (authority, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if authority.is_empty() {
        return Err("there is no host".to_owned());
    }
    if authority.contains('@') {
        return Err("a user name has no place in the server address".to_owned());
    }
    if rest.contains(['?', '#']) || rest.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("a query, a fragment or a space has no place in the server address".to_owned());
    }
    let colons = authority.matches(':').count();
    if !authority.starts_with('[') && colons > 1 {
        return Err("an IPv6 address must stand in brackets".to_owned());
    }
    let port = match authority.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => Some(port),
        _ => None,
    };
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return Err("the port is not a number below 65536".to_owned());
    }
    let prefix = prefix.trim_end_matches('/');
    Ok(if prefix.is_empty() {
        format!("{scheme}://{authority}")
    } else {
        format!("{scheme}://{authority}/{prefix}")
    })
}

fn system_bundles(named: Option<String>) -> Vec<PathBuf> {
    match named {
        Some(path) => vec![PathBuf::from(path)],
        None => SYSTEM_BUNDLES.iter().map(PathBuf::from).collect(),
    }
}

/// Reads a whole file, within the limit.
pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, Error> {
    let wrong = |why: String| Error::Config(format!("cannot read {}: {why}", path.display()));
    let length = fs::metadata(path)
        .map_err(|error| wrong(error.to_string()))?
        .len();
    if length > FILE_LIMIT {
        return Err(wrong(format!(
            "it has {length} bytes, more than {FILE_LIMIT}"
        )));
    }
    fs::read(path).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::scripted::Folder;

    fn load(wanted: &Wanted<'_>, env: &[(&str, &str)]) -> Result<ClusterConfig, Error> {
        ClusterConfig::load(wanted, &|name| {
            env.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    fn wanted(folder: &Folder) -> Wanted<'_> {
        Wanted {
            kube_config: None,
            context: None,
            server: None,
            service_account_dir: folder.path(),
        }
    }

    fn pod(folder: &Folder) {
        folder.write("token", "abc\n");
        folder.write("ca.crt", "ca");
        folder.write("namespace", "shop\n");
    }

    #[test]
    fn a_pod_is_configured_by_its_files() {
        let folder = Folder::new();
        pod(&folder);
        for (host, server) in [
            ("10.96.0.1", "https://10.96.0.1:443"),
            ("fd00::1", "https://[fd00::1]:443"),
            ("[fd00::1]", "https://[fd00::1]:443"),
            (
                "kubernetes.default.svc",
                "https://kubernetes.default.svc:443",
            ),
        ] {
            let config = load(
                &wanted(&folder),
                &[
                    ("KUBERNETES_SERVICE_HOST", host),
                    ("KUBERNETES_SERVICE_PORT", "443"),
                    ("HOME", "/nonexistent"),
                ],
            )
            .unwrap();
            assert_eq!(config.server, server);
            assert_eq!(config.namespace.as_deref(), Some("shop"));
            assert!(
                matches!(&config.login.token, Some(Token::File(path)) if *path == folder.path().join("token"))
            );
            assert!(matches!(config.trust, Trust::Authority(_)));
        }
    }

    #[test]
    fn a_pod_without_a_token_says_what_to_do() {
        let folder = Folder::new();
        let error = load(
            &wanted(&folder),
            &[
                ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
                ("KUBERNETES_SERVICE_PORT", "443"),
            ],
        )
        .unwrap_err();
        assert!(error.to_string().contains("automountServiceAccountToken"));
    }

    #[test]
    fn the_flag_wins_over_the_variable_and_that_over_home_and_that_over_the_pod() {
        let folder = Folder::new();
        pod(&folder);
        fs::create_dir_all(folder.path().join(".kube")).unwrap();
        let file = |name: &str, server: &str| {
            folder.write(
                name,
                &format!(
                    "current-context: c\nclusters: [{{name: k, cluster: {{server: 'https://{server}'}}}}]\ncontexts: [{{name: c, context: {{cluster: k, user: ''}}}}]\n"
                ),
            );
        };
        file("flag", "flag");
        file("variable", "variable");
        file(".kube/config", "home");
        let flag = folder.path().join("flag");
        let variable = folder.path().join("variable");
        let home = folder.path().to_str().unwrap();
        let mut env = vec![
            ("KUBECONFIG", variable.to_str().unwrap()),
            ("HOME", home),
            ("KUBERNETES_SERVICE_HOST", "pod"),
            ("KUBERNETES_SERVICE_PORT", "1"),
        ];
        let mut asked = wanted(&folder);
        asked.kube_config = Some(&flag);
        assert_eq!(load(&asked, &env).unwrap().server, "https://flag");
        asked.kube_config = None;
        assert_eq!(load(&asked, &env).unwrap().server, "https://variable");
        env.remove(0);
        assert_eq!(load(&asked, &env).unwrap().server, "https://home");
        env.remove(0);
        assert_eq!(load(&asked, &env).unwrap().server, "https://pod:1");
        asked.server = Some("https://elsewhere:6443/");
        assert_eq!(load(&asked, &env).unwrap().server, "https://elsewhere:6443");
    }

    #[test]
    fn nothing_configured_and_a_wrong_path_name_the_remedy() {
        let folder = Folder::new();
        let error = load(&wanted(&folder), &[("HOME", "/nonexistent")]).unwrap_err();
        assert!(error.to_string().contains("--kube-config"), "{error}");
        let error = load(&wanted(&folder), &[("KUBECONFIG", "/no/a:/no/b")]).unwrap_err();
        assert!(error.to_string().contains("/no/a:/no/b"), "{error}");
        let missing = folder.path().join("missing");
        let mut asked = wanted(&folder);
        asked.kube_config = Some(&missing);
        let error = load(&asked, &[]).unwrap_err();
        assert!(error.to_string().contains("missing"), "{error}");
        assert!(error.to_string().contains("--kube-config"), "{error}");
        let mut asked = wanted(&folder);
        asked.context = Some("x");
        assert!(load(&asked, &[]).unwrap_err().to_string().contains("\"x\""));
    }

    #[test]
    fn server_addresses_are_brought_into_one_form() {
        for (text, encrypted, expected) in [
            ("https://a:6443/", true, Ok("https://a:6443")),
            ("HTTPS://a", true, Ok("https://a")),
            (
                "https://a/k8s/clusters/c-1/",
                true,
                Ok("https://a/k8s/clusters/c-1"),
            ),
            ("a:8080", false, Ok("http://a:8080")),
            ("a:6443", true, Ok("https://a:6443")),
            ("https://[::1]:6443", true, Ok("https://[::1]:6443")),
            ("https://[::1]", true, Ok("https://[::1]")),
            (
                "https://::1:6443",
                true,
                Err("an IPv6 address must stand in brackets"),
            ),
            ("https://", true, Err("there is no host")),
            (
                "ftp://a",
                true,
                Err("the scheme \"ftp\" is neither https nor http"),
            ),
            (
                "https://u:p@a",
                true,
                Err("a user name has no place in the server address"),
            ),
            (
                "https://a?x",
                true,
                Err("a query, a fragment or a space has no place in the server address"),
            ),
            (
                "https://a:70000",
                true,
                Err("the port is not a number below 65536"),
            ),
        ] {
            assert_eq!(
                server_url(text, encrypted)
                    .as_deref()
                    .map_err(String::as_str),
                expected,
                "{text}"
            );
        }
    }
}
