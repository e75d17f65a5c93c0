//! A custom resource in three versions, converted by hooks: the world of these tests, and what a user does with kubectl.
//!
//! The same place is written differently in each version: `host: "a:80"`, then `host: a` and `port: "80"`, then
//! `address: {host: a, port: 80}`. So a conversion that did not happen shows in the object.

/// The conversion port as a caller sees it that is not the API server.
mod protocol;
/// What the operator keeps in the CRD.
mod registration;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::stage::{CONVERSION_PORT, script};
use crate::support::{Connection, Operator, SOON, Stage, repository, wait_for};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const VERSIONS: [&str; 3] = ["v1alpha1", "v1beta1", "v1"];

/// Notes each run as `from to count`, then converts by the rule it is run for.
const CONVERT: &str = r#"
jq -r '.[0] | "\(.fromVersion) \(.toVersion) \(.review.request.objects | length)"' "$BINDING_CONTEXT_PATH" >>"$HOME/runs"
jq '.[0] | .toVersion as $to | (.review.request.desiredAPIVersion | split("/")[0]) as $group
  | {convertedObjects: [.review.request.objects[]
    | .apiVersion |= split("/")[1]
    | .spec |= . + if .address then {host: .address.host, port: "\(.address.port)"}
               elif .port then {} else (.host / ":" | {host: .[0], port: .[1]}) end
    | .apiVersion = "\($group)/\($to)"
    | .spec = if $to == "v1" then {address: {host: .spec.host, port: (.spec.port | tonumber)}}
              elif $to == "v1beta1" then {host: .spec.host, port: .spec.port}
              else {host: "\(.spec.host):\(.spec.port)"} end]}
' "$BINDING_CONTEXT_PATH" >"$CONVERSION_RESPONSE_PATH"
"#;

/// A stage whose operator converts the custom resource `crontabs` of a group of its own.
struct Converting {
    stage: Stage<'static>,
    group: String,
}

impl Converting {
    fn new(name: &str) -> Converting {
        let stage = Stage::new(name);
        let group = format!("{}.example.com", stage.label);
        Converting { stage, group }
    }

    /// The usual two hooks, of one step up and one step down each.
    fn usual(name: &str) -> Converting {
        Converting::new(name)
            .hook(
                "low",
                &[("v1alpha1", "v1beta1"), ("v1beta1", "v1alpha1")],
                CONVERT,
            )
            .hook("high", &[("v1beta1", "v1"), ("v1", "v1beta1")], CONVERT)
    }

    fn hook(self, stem: &str, rules: &[(&str, &str)], body: &str) -> Converting {
        self.hook_with(stem, rules, &json!([]), body)
    }

    /// The hook also watches, and sees in its snapshots, what these kubernetes bindings say.
    fn hook_with(
        self,
        stem: &str,
        rules: &[(&str, &str)],
        watched: &Value,
        body: &str,
    ) -> Converting {
        let rules: Vec<Value> = rules
            .iter()
            .map(|(from, to)| json!({ "fromVersion": from, "toVersion": to }))
            .collect();
        let mut config = json!({
            "configVersion": "v1",
            "kubernetesCustomResourceConversion": [{
                "name": format!("{stem}-conversion"), "crdName": self.crd_name(), "conversions": rules,
            }],
        });
        for binding in watched.as_array().into_iter().flatten() {
            config["kubernetes"] = watched.clone();
            config["kubernetesCustomResourceConversion"][0]["includeSnapshotsFrom"] =
                json!([binding["name"]]);
        }
        let written = script(&config, body);
        self.stage.env.write_hook(&format!("{stem}.sh"), &written);
        self
    }

    fn crd_name(&self) -> String {
        format!("crontabs.{}", self.group)
    }

    fn crd_path(&self) -> String {
        format!("{CRDS}/{}", self.crd_name())
    }

    fn crd(&self) -> Value {
        self.stage.api.object(&self.crd_path())
    }

    /// Makes the CRD, whose objects are stored as this version.
    #[track_caller]
    fn make_crd(&self, stored: &str) {
        let text = json!({ "type": "string" });
        let schemas = [
            json!({ "host": text }),
            json!({ "host": text, "port": text }),
            json!({ "address": {
                "type": "object", "properties": { "host": text, "port": { "type": "integer" } },
            } }),
        ];
        let versions: Vec<Value> = VERSIONS
            .iter()
            .zip(schemas)
            .map(|(name, properties)| {
                let spec = json!({ "type": "object", "properties": properties });
                json!({
                    "name": name, "served": true, "storage": *name == stored,
                    "schema": { "openAPIV3Schema": { "type": "object", "properties": { "spec": spec } } },
                })
            })
            .collect();
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": self.crd_name() },
            "spec": {
                "group": self.group, "scope": "Namespaced", "versions": versions,
                "names": { "plural": "crontabs", "singular": "crontab", "kind": "CronTab" },
            },
        });
        let answer = self.stage.api.create(CRDS, &crd);
        assert_eq!(answer.status, 201, "{}", answer.text());
    }

    /// Starts the operator and waits until objects are converted.
    #[track_caller]
    fn start(&self) -> Operator {
        let operator = self.stage.env.start();
        operator.wait_ready();
        self.wait_registered();
        operator
    }

    #[track_caller]
    fn wait_registered(&self) {
        wait_for("the CRD to be patched", SOON, || {
            self.crd()["spec"]["conversion"]["strategy"] == "Webhook"
        });
        for version in VERSIONS {
            // The API server serves each version a moment after the CRD.
            wait_for("the version to be served", SOON, || {
                self.stage.api.get(&self.path(version)).status == 200
            });
        }
    }

    /// The path of objects in a version.
    fn path(&self, version: &str) -> String {
        let (group, namespace) = (&self.group, &self.stage.label);
        format!("/apis/{group}/{version}/namespaces/{namespace}/crontabs")
    }

    /// An object with host `a` and port 80 as it is written in a version.
    fn object(&self, name: &str, version: &str) -> Value {
        let spec = match version {
            "v1alpha1" => json!({ "host": "a:80" }),
            "v1beta1" => json!({ "host": "a", "port": "80" }),
            _ => json!({ "address": { "host": "a", "port": 80 } }),
        };
        json!({
            "apiVersion": format!("{}/{version}", self.group), "kind": "CronTab",
            "metadata": { "name": name, "labels": { "made-as": version } }, "spec": spec,
        })
    }

    /// Creates it once the API server has taken over a change of the CRD.
    #[track_caller]
    fn create(&self, name: &str, version: &str) {
        let object = self.object(name, version);
        wait_for("the object to be created", SOON, || {
            self.stage.api.create(&self.path(version), &object).status == 201
        });
    }

    /// Reads it, also when the API server is just taking over a change of the CRD and asks for a moment.
    #[track_caller]
    fn get(&self, name: &str, version: &str) -> Value {
        let path = format!("{}/{name}", self.path(version));
        let answer = wait_for("an answer", SOON, || {
            let answer = self.stage.api.get(&path);
            (answer.status != 429).then_some(answer)
        });
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// The runs of hooks since the last call, each as `from to count`.
    fn runs(&self) -> Vec<String> {
        let path = self.stage.env.path().join("home/runs");
        let notes = std::fs::read_to_string(&path).unwrap_or_default();
        let _ = std::fs::remove_file(path);
        notes.lines().map(str::to_owned).collect()
    }

    /// A connection to the operator as the API server makes it.
    #[track_caller]
    fn connect(&self) -> Connection {
        let address = SocketAddr::new(self.stage.env.address(), CONVERSION_PORT);
        let bundle = self.bundle();
        Connection::tls(address, &address.ip().to_string(), &bundle, None).unwrap()
    }

    /// The CAs that the API server was told to trust.
    #[track_caller]
    fn bundle(&self) -> String {
        let crd = self.crd();
        let bundle = &crd["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"];
        String::from_utf8(STANDARD.decode(bundle.as_str().unwrap()).unwrap()).unwrap()
    }
}

impl Drop for Converting {
    fn drop(&mut self) {
        // It may never have been made.
        let _ = self
            .stage
            .api
            .try_ask("DELETE", &self.crd_path(), "application/json", b"");
    }
}

#[test]
fn kubectl_reads_and_writes_every_version() {
    let world = Converting::usual("every-version");
    world.make_crd("v1");
    let operator = world.start();
    let namespace = &world.stage.namespace;
    let kind = |version: &str| format!("crontabs.{version}.{}", world.group);
    for written in VERSIONS {
        let name = format!("as-{written}");
        namespace.apply(&world.object(&name, written).to_string());
        for read in VERSIONS {
            let shown = namespace.kubectl(&["get", &kind(read), &name, "-o", "json"]);
            let shown: Value = serde_json::from_str(&shown.ok()).unwrap();
            let expected = world.object(&name, read);
            assert_eq!(shown["apiVersion"], expected["apiVersion"]);
            assert_eq!(shown["spec"], expected["spec"], "{written} as {read}");
            assert_eq!(shown["metadata"]["labels"]["made-as"], written);
        }
    }
    // A change of one version is seen in the others.
    let patch = r#"{"spec": {"host": "b:81"}}"#;
    let patched = namespace.kubectl(&[
        "patch",
        &kind("v1alpha1"),
        "as-v1",
        "--type=merge",
        "-p",
        patch,
    ]);
    patched.ok();
    let address = &world.get("as-v1", "v1")["spec"]["address"];
    assert_eq!(*address, json!({ "host": "b", "port": 81 }));

    let metrics = operator.http_get(9115, "/metrics").unwrap().text();
    for hook in ["low", "high"] {
        let parts = [
            "hook_run_success_total{".to_owned(),
            format!("binding=\"{hook}-conversion\""),
            format!("hook=\"{hook}.sh\""),
            "queue=\"\"".to_owned(),
        ];
        let counted = |line: &str| parts.iter().all(|part| line.contains(part));
        assert!(metrics.lines().any(counted), "{metrics}");
    }
    let line = operator.wait_log("a conversion", |line| {
        line.message() == "ConversionResponse from hook" && line.label("hook") == Some("low.sh")
    });
    assert_eq!(line.label("crd"), Some(world.crd_name().as_str()));
    assert!(line.label("uid").is_some());
}

#[test]
fn a_list_of_mixed_stored_versions_is_read_in_every_version() {
    let world = Converting::usual("mixed");
    world.make_crd("v1alpha1");
    let _operator = world.start();
    for name in ["a", "b"] {
        world.create(name, "v1alpha1");
    }
    for (stored, names) in [("v1beta1", ["c", "d"]), ("v1", ["e", "f"])] {
        let mut versions = world.crd()["spec"]["versions"].clone();
        for version in versions.as_array_mut().unwrap() {
            version["storage"] = json!(version["name"] == stored);
        }
        let patch = json!({ "spec": { "versions": versions } });
        let answer = world.stage.api.merge(&world.crd_path(), &patch);
        assert_eq!(answer.status, 200, "{}", answer.text());
        wait_for("the stored version to be in use", SOON, || {
            let probe = world.object("probe", "v1alpha1");
            world.runs();
            let path = format!("{}?dryRun=All", world.path("v1alpha1"));
            let answer = world.stage.api.create(&path, &probe);
            let expected = format!(" {stored} 1");
            answer.status == 201 && world.runs().iter().any(|run| run.ends_with(&expected))
        });
        for name in names {
            world.create(name, stored);
        }
    }
    for version in VERSIONS {
        // A CRD that was changed is not served for a moment.
        let list = wait_for("the list", SOON, || {
            let answer = world.stage.api.get(&world.path(version));
            (answer.status == 200).then(|| answer.json())
        });
        let items = list["items"].as_array().unwrap();
        let names: Vec<&str> = items
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["a", "b", "c", "d", "e", "f"]);
        for item in items {
            assert_eq!(
                item["spec"],
                world.object("x", version)["spec"],
                "{version}"
            );
            assert_eq!(item["apiVersion"], format!("{}/{version}", world.group));
        }
    }
}

#[test]
fn a_failing_conversion_shows_the_hooks_own_words_and_a_crash_only_its_name() {
    let failing = r#"
name=$(jq -r '.[0].review.request.objects[0].metadata.name' "$BINDING_CONTEXT_PATH")
echo "secret of stderr" >&2
case $name in
  refused) echo '{"failedMessage": "a port above 1024 is needed, got 80"}' >"$CONVERSION_RESPONSE_PATH" ;;
  crashed) exit 3 ;;
  empty) ;;
  garbled) echo '{"convertedObjects": 5}' >"$CONVERSION_RESPONSE_PATH" ;;
  without) echo '{}' >"$CONVERSION_RESPONSE_PATH" ;;
  fewer) echo '{"convertedObjects": []}' >"$CONVERSION_RESPONSE_PATH" ;;
esac
"#;
    let world = Converting::new("failing").hook("fail", &[("v1alpha1", "v1")], failing);
    world.make_crd("v1");
    let operator = world.start();
    let hook = format!(
        "Hook failed to convert to {}/v1: Shell-operator hook 'fail.sh' error: ",
        world.group
    );
    for (name, expected) in [
        ("refused", "a port above 1024 is needed, got 80".to_owned()),
        ("crashed", format!("{hook}exit code 3.")),
        ("empty", format!("{hook}invalid response.")),
        ("garbled", format!("{hook}invalid response.")),
        (
            "without",
            format!("{hook}the answer has no convertedObjects."),
        ),
        (
            "fewer",
            format!("{hook}hook returned 0 objects instead of 1."),
        ),
    ] {
        let object = world.object(name, "v1alpha1").to_string();
        let shown = world.stage.namespace.try_apply(&object).err();
        assert!(shown.contains(&expected), "{shown}");
        assert!(!shown.contains("secret of stderr"), "{shown}");
    }
    // Nothing leads from here.
    let object = world.object("stray", "v1beta1").to_string();
    let shown = world.stage.namespace.try_apply(&object).err();
    let expected = format!(
        "Conversion {} to {1}/v1 was not successful: no conversion leads there from {1}/v1beta1",
        world.crd_name(),
        world.group
    );
    assert!(shown.contains(&expected), "{shown}");
    // Said once, with the remedy, however often it is asked for.
    let _ = world.stage.namespace.try_apply(&object).err();
    let told = format!(
        "no conversion of {} leads from {1}/v1beta1 to {1}/v1; add {{fromVersion: {1}/v1beta1, toVersion: {1}/v1}} to",
        world.crd_name(),
        world.group
    );
    operator.wait_log("the remedy", |line| line.contains(&told));
    let lines = operator.log_lines();
    assert_eq!(lines.iter().filter(|line| line.contains(&told)).count(), 1);
    operator.wait_log("the details", |line| {
        line.label("level") == Some("error")
            && line.label("hook") == Some("fail.sh")
            && line.contains("secret of stderr")
    });
}

/// The API server's limit of 30 s is fixed, so this takes most of it.
#[test]
fn a_hanging_hook_is_named_with_its_limit_before_the_api_server_gives_up() {
    let world = Converting::new("hung").hook("hang", &[("v1alpha1", "v1")], "sleep 1000");
    world.make_crd("v1");
    let operator = world.start();
    let asked = Instant::now();
    let object = world.object("a", "v1alpha1").to_string();
    let shown = world.stage.namespace.try_apply(&object).err();
    let expected =
        "Shell-operator hook 'hang.sh' error: killed at the limit of 27 s for a conversion.";
    assert!(shown.contains(expected), "{shown}");
    assert!(
        asked.elapsed() < Duration::from_secs(45),
        "{:?}",
        asked.elapsed()
    );
    wait_for("the end of the hook", SOON, || {
        operator.offspring().is_empty()
    });
}

/// Objects may have to be converted before they can be listed, so conversions do not wait for the first runs of hooks.
#[test]
fn a_hook_may_watch_what_has_to_be_converted_and_sees_it_in_its_snapshots() {
    let world = Converting::usual("watched");
    world.make_crd("v1alpha1");
    let mut operator = world.start();
    world.create("a", "v1alpha1");
    operator.term();
    operator.wait_exit(SOON);
    let watched = json!([{
        "name": "tabs", "apiVersion": format!("{}/v1", world.group), "kind": "CronTab",
        "executeHookOnEvent": [], "executeHookOnSynchronization": false,
        "namespace": { "nameSelector": { "matchNames": [world.stage.label] } },
    }]);
    let body = format!(
        "if grep -q Conversion \"$BINDING_CONTEXT_PATH\"; then\ncp \"$BINDING_CONTEXT_PATH\" \"$HOME/context\"\n{CONVERT}\nfi"
    );
    let world = world.hook_with(
        "high",
        &[("v1beta1", "v1"), ("v1", "v1beta1")],
        &watched,
        &body,
    );
    let _operator = world.start();
    let seen = wait_for("the object in the snapshot", SOON, || {
        world.get("a", "v1");
        let text = std::fs::read_to_string(world.stage.env.path().join("home/context")).ok()?;
        let context: Value = serde_json::from_str(&text).ok()?;
        let item = context[0]["snapshots"]["tabs"][0]["object"].clone();
        item.is_object().then_some((context, item))
    });
    let (context, item) = seen;
    assert_eq!(item["spec"], world.object("a", "v1")["spec"]);
    assert_eq!(context[0]["type"], "Conversion");
    assert_eq!(context[0]["binding"], "high-conversion");
    assert_eq!(context[0]["fromVersion"], "v1beta1");
    let request = &context[0]["review"]["request"];
    assert_eq!(request["desiredAPIVersion"], format!("{}/v1", world.group));
    assert_eq!(request["objects"].as_array().map(Vec::len), Some(1));
}

/// The example, through the API server, with the CRD that lies beside it.
#[test]
fn the_example_converts_sites() {
    let stage = Stage::new("sites");
    let stage = stage.env("SHELL_OPERATOR_HOOKS_DIR", "shipped/examples");
    let folder = stage.env.path().join("shipped");
    std::fs::create_dir_all(folder.join("examples")).unwrap();
    let shipped = repository().join("hooks");
    std::os::unix::fs::symlink(shipped.join("lib"), folder.join("lib")).unwrap();
    for name in ["convert-sites.sh", "sites-crd.yaml"] {
        std::fs::copy(
            shipped.join("examples").join(name),
            folder.join("examples").join(name),
        )
        .unwrap();
    }
    let operator = stage.env.start();
    operator.wait_ready();
    let crd = shipped.join("examples/sites-crd.yaml");
    let crd = std::fs::read_to_string(crd).unwrap();
    stage.namespace.apply(&crd);
    let name = "sites.web.example.com";
    wait_for("the CRD to be patched", SOON, || {
        let crd = stage.api.object(&format!("{CRDS}/{name}"));
        crd["spec"]["conversion"]["strategy"] == "Webhook"
    });
    let site = |address: &str| {
        json!({
            "apiVersion": "web.example.com/v1alpha1", "kind": "Site",
            "metadata": { "name": "shop" }, "spec": { "address": address },
        })
        .to_string()
    };
    wait_for("the resource to be served", SOON, || {
        let applied = stage.namespace.try_apply(&site("shop.example.com:443"));
        applied.code == Some(0)
    });
    let path = |version: &str| {
        format!(
            "/apis/web.example.com/{version}/namespaces/{}/sites/shop",
            stage.label
        )
    };
    let listen = stage.api.object(&path("v1"))["spec"]["listen"].clone();
    assert_eq!(listen, json!({ "host": "shop.example.com", "port": 443 }));
    let shown = stage.namespace.try_apply(&site("nowhere")).err();
    assert!(
        shown.contains("spec.address must be a host and a port, such as shop.example.com:443, and not \"nowhere\""),
        "{shown}"
    );
    stage.api.delete(&path("v1"));
    stage.api.delete(&format!("{CRDS}/{name}"));
}
