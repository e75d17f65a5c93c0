//! Cases for the registry: names, order, routes, and what happens to broken hooks.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU32, Ordering};

use super::binding::AdmissionKind;
use super::*;

/// A directory that is removed when the test ends, however it ends.
pub(super) struct TempDir(PathBuf);

impl TempDir {
    pub(super) fn new() -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("hook-test-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// An empty file; a registry test uses its content as what `--config` prints.
    pub(super) fn file(&self, name: &str, mode: u32) {
        self.file_with(name, mode, "");
    }

    fn file_with(&self, name: &str, mode: u32, content: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Stands in for running the hook: what the file holds is what it prints. A first word `fail` makes it fail.
fn print_file(path: &Path) -> Result<ConfigOutput, String> {
    let stdout = fs::read(path).map_err(|error| error.to_string())?;
    let failure = stdout
        .starts_with(b"fail")
        .then(|| "exit status 1".to_owned());
    Ok(ConfigOutput {
        stdout,
        stderr: b"went wrong".to_vec(),
        failure,
    })
}

fn hooks(files: &[(&str, &str)]) -> TempDir {
    let dir = TempDir::new();
    for (name, content) in files {
        dir.file_with(name, 0o755, content);
    }
    dir
}

fn load(files: &[(&str, &str)]) -> Result<Registry, LoadError> {
    Registry::load(hooks(files).path(), &print_file, false)
}

/// The route for a request's path, in either form.
fn route<'a>(registry: &'a Registry, path: &str) -> Option<&'a Route> {
    let path = normalize(path);
    registry
        .routes
        .iter()
        .find(|route| route.path == path || route.alias.as_ref() == Some(&path))
}

fn webhook(section: &str, names: &[&str]) -> String {
    let mut text = format!("configVersion: v1\n{section}:\n");
    for name in names {
        text.push_str(&format!(
            "- {{name: {name}, rules: [{{apiGroups: [''], apiVersions: [v1], resources: [pods], operations: ['*']}}]}}\n"
        ));
    }
    text
}

#[test]
fn hooks_are_named_by_their_path_and_kept_in_order() {
    let registry = load(&[
        ("b/hook.sh", "onStartup: 1"),
        ("a.sh", "onStartup: 10"),
        ("c.sh", "onStartup: 1"),
        (
            "d.sh",
            "{\"configVersion\":\"v1\",\"schedule\":[{\"crontab\":\"@daily\"}]}",
        ),
    ])
    .unwrap();
    let names: Vec<&str> = registry
        .hooks
        .iter()
        .map(|hook| hook.name.as_str())
        .collect();
    assert_eq!(names, ["a.sh", "b/hook.sh", "c.sh", "d.sh"]);
    assert!(registry.hooks[1].path.is_absolute());
    assert_eq!(registry.on_startup(), [1, 2, 0]);
    assert!(registry.broken.is_empty());
}

#[test]
fn no_hooks_is_no_error_but_no_directory_is() {
    assert!(load(&[]).unwrap().hooks.is_empty());
    let error = |dir: &Path| {
        Registry::load(dir, &print_file, false)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error(Path::new("")),
        "hooks directory: path is required but not set"
    );
    assert_eq!(
        error(Path::new("/no/such")),
        "hooks directory: path '/no/such' not exist"
    );
    let dir = hooks(&[("file", "")]);
    assert!(error(&dir.path().join("file")).starts_with("hooks directory: read '"));
}

#[test]
fn one_bad_hook_stops_the_start_and_is_named() {
    let error = load(&[("good.sh", "onStartup: 1"), ("bad/x.sh", "onStartup: x")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "creating hook 'bad/x.sh': load hook 'bad/x.sh' config: 1 error occurred:\n\
         \t* onStartup must be of type integer: \"string\" (line 1)\n\n\n\
         hook --config output: onStartup: x"
    );
    let dir = hooks(&[("a.sh", "fail")]);
    let error = Registry::load(dir.path(), &print_file, false)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        format!(
            "cannot get config for hook '{}': exit status 1",
            dir.path().join("a.sh").display()
        )
    );
}

#[test]
fn broken_hooks_can_be_left_out_and_are_remembered() {
    let dir = hooks(&[
        ("a.sh", "fail"),
        ("b.sh", "onStartup: 1"),
        ("c.sh", "nonsense: true"),
        ("d.sh", &webhook("kubernetesValidating", &["x.example.com"])),
        ("e.sh", &webhook("kubernetesValidating", &["x.example.com"])),
    ]);
    let registry = Registry::load(dir.path(), &print_file, true).unwrap();
    let names: Vec<&str> = registry
        .hooks
        .iter()
        .map(|hook| hook.name.as_str())
        .collect();
    assert_eq!(names, ["b.sh", "d.sh"]);
    let broken: Vec<&str> = registry
        .broken
        .iter()
        .map(|hook| hook.name.as_str())
        .collect();
    assert_eq!(broken, ["a.sh", "c.sh", "e.sh"]);
    assert!(
        registry.broken[1]
            .error
            .contains(".nonsense is a forbidden property")
    );
    assert!(registry.broken[2].error.contains("'d.sh' and 'e.sh'"));
    assert_eq!(registry.routes.len(), 1);
}

#[test]
fn a_hook_that_cannot_be_started_is_broken() {
    let dir = hooks(&[("a.sh", "")]);
    let refuse = |_: &Path| Err("permission denied".to_owned());
    let error = Registry::load(dir.path(), &refuse, false).unwrap_err();
    assert!(
        error.to_string().ends_with("/a.sh': permission denied"),
        "{error}"
    );
}

#[test]
fn a_path_has_the_hook_and_the_webhook() {
    // SO-39: and the original's path goes on working.
    let registry = load(&[
        (
            "10-Policies/Check.SH",
            &webhook("kubernetesValidating", &["a.example.com", "b.example.com"]),
        ),
        (
            "mutate.py",
            &webhook("kubernetesMutating", &["c-d.example.com"]),
        ),
    ])
    .unwrap();
    let paths: Vec<&str> = registry
        .routes
        .iter()
        .map(|route| route.path.as_str())
        .collect();
    assert_eq!(
        paths,
        [
            "/hooks/10-policies-check-sh/a-example-com",
            "/hooks/10-policies-check-sh/b-example-com",
            "/hooks/mutate-py/c-d-example-com",
        ]
    );
    for (path, expected) in [
        (
            "/hooks/10-policies-check-sh/b-example-com",
            Some((0, AdmissionKind::Validating, 1)),
        ),
        (
            "/hooks/10-policies-check-sh/b-example-com?timeout=10s",
            Some((0, AdmissionKind::Validating, 1)),
        ),
        (
            "/hooks/b-example-com",
            Some((0, AdmissionKind::Validating, 1)),
        ),
        (
            "//hooks///c-d-example-com/",
            Some((1, AdmissionKind::Mutating, 0)),
        ),
        (
            "/hooks/mutate-py/c-d-example-com",
            Some((1, AdmissionKind::Mutating, 0)),
        ),
        ("/hooks/mutate-py/a-example-com", None),
        ("/hooks/other", None),
        ("/b-example-com", None),
        ("/", None),
        ("", None),
    ] {
        let found = route(&registry, path).map(|route| (route.hook, route.kind, route.binding));
        assert_eq!(found, expected, "{path}");
    }
}

#[test]
fn a_path_is_never_shared() {
    let validating = |names: &[&str]| webhook("kubernetesValidating", names);
    let mutating = |names: &[&str]| webhook("kubernetesMutating", names);
    // Inside one hook: names that give one id.
    let error =
        load(&[("a.sh", &validating(&["a.b.example.com", "a-b.example.com"]))]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "webhook 'a.b.example.com' of hook 'a.sh' and webhook 'a-b.example.com' of hook 'a.sh' would both be registered \
         under path '/hooks/a-sh/a-b-example-com': rename one of them"
    );
    // Inside one hook: a validating and a mutating webhook of one name.
    let both = format!(
        "{}{}",
        validating(&["x.example.com"]),
        mutating(&["x.example.com"]).replace("configVersion: v1\n", "")
    );
    assert!(
        load(&[("a.sh", &both)])
            .unwrap_err()
            .to_string()
            .contains("would both be registered")
    );
    // Between hooks whose names are equal once made safe.
    let error = load(&[
        ("a-sh", &validating(&["x.example.com"])),
        ("a.sh", &mutating(&["x.example.com"])),
    ])
    .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("of hook 'a-sh' and webhook 'x.example.com' of hook 'a.sh'"),
        "{error}"
    );
    // Between hooks: one name, which the API server would refuse.
    let error = load(&[
        ("a.sh", &validating(&["x.example.com"])),
        ("b.sh", &validating(&["x.example.com"])),
    ])
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "hooks 'a.sh' and 'b.sh' both have a kubernetesValidating webhook named 'x.example.com': rename one of them"
    );
}

#[test]
fn an_ambiguous_alias_is_not_served() {
    let registry = load(&[
        (
            "a.sh",
            &webhook("kubernetesValidating", &["x.example.com", "y.example.com"]),
        ),
        ("b.sh", &webhook("kubernetesMutating", &["x.example.com"])),
        (
            "c.sh",
            &webhook("kubernetesValidating", &["x-example.com.org"]),
        ),
        (
            "d.sh",
            &webhook("kubernetesValidating", &["x.example-com.org"]),
        ),
    ])
    .unwrap();
    assert!(route(&registry, "/hooks/x-example-com").is_none());
    assert!(route(&registry, "/hooks/x-example-com-org").is_none());
    assert!(route(&registry, "/hooks/y-example-com").is_some());
    for (path, hook) in [
        ("/hooks/a-sh/x-example-com", 0),
        ("/hooks/b-sh/x-example-com", 1),
        ("/hooks/d-sh/x-example-com-org", 3),
    ] {
        assert_eq!(
            route(&registry, path).map(|route| route.hook),
            Some(hook),
            "{path}"
        );
    }
}

#[test]
fn an_endless_output_is_cut_in_the_message() {
    let long = format!("onStartup: x # {}", "y".repeat(100_000));
    let error = load(&[("a.sh", &long)]).unwrap_err().to_string();
    assert!(error.len() < 2 * SHOWN_OUTPUT && error.ends_with("yyy..."));
}
