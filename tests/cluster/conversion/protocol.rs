//! ConversionReviews sent by hand: versions, paths, chains of several hooks, and what is made of an answer that cannot be used.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{CONVERT, Converting};
use crate::support::stage::CONVERSION_PORT;
use crate::support::{Authority, Connection, Identity, Operator, SOON, Validity, wait_for};

/// The requirement: an answer before the time that the caller names.
const TIMEOUT: Duration = Duration::from_secs(2);

impl Converting {
    /// Ready to be asked; the CRD is there for its CA bundle only.
    fn ready(&self) -> Operator {
        self.make_crd("v1");
        let operator = self.stage.env.start();
        operator.wait_ready();
        wait_for("the CRD to be patched", SOON, || {
            self.crd()["spec"]["conversion"]["strategy"] == "Webhook"
        });
        // The API server asks on its own while it sets up the resource.
        self.runs();
        operator
    }

    fn review(&self, desired: &str, objects: &[Value]) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": {
                "uid": "u-1", "desiredAPIVersion": format!("{}/{desired}", self.group),
                "objects": objects,
            },
        })
    }

    /// What is answered for these objects.
    fn ask(&self, desired: &str, objects: &[Value]) -> Value {
        let path = format!("/{}?timeout=2s", self.crd_name());
        let review = self.review(desired, objects);
        let answer = self.connect().post_json(&path, &review).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer = answer.json();
        assert_eq!(answer["response"]["uid"], "u-1");
        answer["response"].clone()
    }
}

#[test]
fn a_conversion_is_answered_in_the_version_it_came_in() {
    let world = Converting::usual("conversion-versions");
    let _operator = world.ready();
    for version in ["apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1"] {
        let mut review = world.review("v1", &[world.object("a", "v1beta1")]);
        review["apiVersion"] = json!(version);
        let path = format!("/{}", world.crd_name());
        let answer = world.connect().post_json(&path, &review).unwrap();
        let mut expected = world.object("a", "v1");
        expected["metadata"]["labels"] = json!({ "made-as": "v1beta1" });
        assert_eq!(
            answer.json(),
            json!({
                "apiVersion": version, "kind": "ConversionReview",
                "response": {
                    "uid": "u-1", "convertedObjects": [expected], "result": { "status": "Success" },
                },
            })
        );
    }
}

#[test]
fn chains_run_each_hook_once_for_all_objects_of_its_version_and_keep_the_order() {
    let world = Converting::usual("chains");
    let _operator = world.ready();
    let made = ["v1beta1", "v1alpha1", "v1", "v1alpha1", "v1beta1"];
    let objects: Vec<Value> = made
        .iter()
        .enumerate()
        .map(|(index, version)| world.object(&format!("o-{index}"), version))
        .collect();
    let response = world.ask("v1", &objects);
    let converted = response["convertedObjects"].as_array().unwrap();
    for (index, object) in converted.iter().enumerate() {
        assert_eq!(object["metadata"]["name"], format!("o-{index}"));
        assert_eq!(object["spec"], world.object("x", "v1")["spec"]);
        assert_eq!(object["metadata"]["labels"]["made-as"], made[index]);
    }
    // The farthest first, so that those in the middle go on with them.
    assert_eq!(world.runs(), ["v1alpha1 v1beta1 2", "v1beta1 v1 4"]);
    // Nothing to do is done without a process.
    let response = world.ask("v1", &[objects[2].clone()]);
    assert_eq!(response["convertedObjects"], json!([objects[2]]));
    assert_eq!(world.ask("v1", &[])["result"]["status"], "Success");
    assert_eq!(world.runs(), [""; 0]);
}

#[test]
fn a_hook_may_convert_further_than_asked_but_not_stay_or_go_back() {
    let to = |version: &str| {
        format!(
            "jq '.[0].review.request | (.desiredAPIVersion | split(\"/\")[0]) as $group\n\
             | {{convertedObjects: [.objects[] | .apiVersion = \"\\($group)/{version}\"]}}' \
             \"$BINDING_CONTEXT_PATH\" >\"$CONVERSION_RESPONSE_PATH\""
        )
    };
    for (version, failing) in [
        ("v1", None),
        ("v1beta1", Some("second.sh")),
        ("v1alpha1", Some("first.sh")),
    ] {
        let world = Converting::new("further")
            .hook("first", &[("v1alpha1", "v1beta1")], &to(version))
            .hook("second", &[("v1beta1", "v1")], &to("v1beta1"));
        let _operator = world.ready();
        let result = world.ask("v1", &[world.object("a", "v1alpha1")])["result"].clone();
        let Some(hook) = failing else {
            assert_eq!(result["status"], "Success", "{result}");
            continue;
        };
        let text = result["message"].as_str().unwrap();
        assert!(text.contains(&format!("'{hook}'")), "{text}");
        assert!(text.contains("is wanted"), "{text}");
    }
}

#[test]
fn an_object_that_became_another_one_is_refused_with_the_field() {
    let change = r#"jq '.[0].review.request | .desiredAPIVersion as $to
  | {convertedObjects: [.objects[] | .apiVersion = $to
    | if .spec.host == "name" then .metadata.name = "other"
      elif .spec.host == "namespace" then .metadata.namespace = "other"
      elif .spec.host == "uid" then del(.metadata.uid)
      elif .spec.host == "kind" then .kind = "Other"
      elif .spec.host == "metadata" then del(.metadata)
      else .metadata |= {name, namespace, uid, annotations: {"a": "b"}} end]}' \
"$BINDING_CONTEXT_PATH" >"$CONVERSION_RESPONSE_PATH""#;
    let world = Converting::new("identity").hook("change", &[("v1alpha1", "v1")], change);
    let _operator = world.ready();
    let object = |what: &str| {
        let mut object = world.object("a", "v1alpha1");
        object["metadata"]["namespace"] = json!("n");
        object["metadata"]["uid"] = json!("o-1");
        object["spec"]["host"] = json!(what);
        object
    };
    for (what, expected) in [
        ("name", "hook changed metadata.name of CronTab 'n/a'"),
        (
            "namespace",
            "hook changed metadata.namespace of CronTab 'n/a'",
        ),
        ("uid", "hook changed metadata.uid of CronTab 'n/a'"),
        ("kind", "hook changed kind of CronTab 'n/a'"),
        (
            "metadata",
            "hook returned CronTab 'n/a' without well-formed metadata",
        ),
    ] {
        let response = world.ask("v1", &[object("fine"), object(what)]);
        assert_eq!(response["convertedObjects"], json!([]), "{what}");
        let result = &response["result"];
        assert_eq!(result["status"], "Failure", "{what}");
        let text = result["message"].as_str().unwrap();
        assert!(
            text.contains(expected) && text.contains("'change.sh'"),
            "{text}"
        );
    }
    let response = world.ask("v1", &[object("fine")]);
    assert_eq!(response["result"]["status"], "Success", "{response}");
}

#[test]
fn a_chain_has_one_time_limit_and_the_hook_that_meets_it_is_named() {
    let world = Converting::new("slow-chain")
        .hook("first", &[("v1alpha1", "v1beta1")], CONVERT)
        .hook("second", &[("v1beta1", "v1")], "sleep 1000");
    let operator = world.ready();
    let asked = Instant::now();
    let response = world.ask("v1", &[world.object("a", "v1alpha1")]);
    assert!(asked.elapsed() < TIMEOUT, "{:?}", asked.elapsed());
    assert_eq!(
        response["result"]["message"],
        format!(
            "Hook failed to convert to {}/v1: Shell-operator hook 'second.sh' error: \
             killed at the limit of 1.8 s for a conversion.",
            world.group
        )
    );
    wait_for("the end of the hook", SOON, || {
        operator.offspring().is_empty()
    });
}

/// The flags of this server are its own: certificate from files, callers by certificate, name and token.
#[test]
fn callers_and_certificate_files_are_as_for_admission() {
    let mut world = Converting::usual("conversion-callers");
    let address = world.stage.env.address().to_string();
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let served = servers.server(&[&address], Validity::Now);
    for (flag, content) in [
        ("server-cert", &served.certificate_pem),
        ("server-key", &served.key_pem),
        ("ca", &servers.pem),
        ("client-ca", &clients.pem),
        ("client-auth-file", &"token-1\n".to_owned()),
    ] {
        let file = world.stage.env.write(flag, content);
        let flag = format!("--conversion-webhook-{flag}={}", file.display());
        world.stage.env = world.stage.env.clone().flag(&flag);
    }
    let name = "--conversion-webhook-client-name=api";
    world.stage.env = world.stage.env.clone().flag(name);
    let _operator = world.ready();
    assert_eq!(world.bundle().trim(), servers.pem.trim());
    let review = world.review("v1", &[world.object("a", "v1beta1")]);
    let path = format!("/{}", world.crd_name());
    let ask = |client: Option<&Identity>, token: &str| {
        let socket = SocketAddr::new(world.stage.env.address(), CONVERSION_PORT);
        let mut connection = Connection::tls(socket, &address, &servers.pem, client)?;
        let token = format!("Bearer {token}");
        let headers = [
            ("Content-Type", "application/json"),
            ("Authorization", token.as_str()),
        ];
        let answer = connection.request("POST", &path, &headers, review.to_string().as_bytes());
        answer.map(|answer| answer.status)
    };
    let known = clients.client("api", &[], Validity::Now);
    let unnamed = clients.client("other", &[], Validity::Now);
    let foreign = servers.client("api", &[], Validity::Now);
    assert!(ask(None, "token-1").is_err());
    assert!(ask(Some(&foreign), "token-1").is_err());
    assert_eq!(ask(Some(&unnamed), "token-1").ok(), Some(403));
    assert_eq!(ask(Some(&known), "token-2").ok(), Some(401));
    assert_eq!(world.runs(), [""; 0]);
    assert_eq!(ask(Some(&known), "token-1").ok(), Some(200));
    assert_eq!(world.runs(), ["v1beta1 v1 1"]);
}

#[test]
fn what_is_no_conversion_is_refused_without_a_process() {
    let world = Converting::usual("no-conversion");
    let _operator = world.ready();
    let path = format!("/{}", world.crd_name());
    let good = world
        .review("v1", &[world.object("a", "v1beta1")])
        .to_string();
    let admission = good.replace("ConversionReview", "AdmissionReview");
    let json = Some("application/json");
    for (method, path, media_type, body, expected) in [
        ("GET", path.as_str(), None, "", 405),
        ("POST", &path, Some("text/plain"), good.as_str(), 415),
        ("POST", &path, json, "{", 400),
        ("POST", &path, json, &admission, 400),
        ("POST", &path, json, "{\"request\": null}", 400),
        ("POST", "/elsewhere", json, "{}", 404),
        ("GET", "/healthz", None, "", 200),
        ("GET", "/readyz", None, "", 200),
    ] {
        let headers: Vec<_> = media_type
            .map(|value| ("Content-Type", value))
            .into_iter()
            .collect();
        let answer = world
            .connect()
            .request(method, path, &headers, body.as_bytes())
            .unwrap();
        assert_eq!(answer.status, expected, "{method} {path} {body:.60}");
    }
    let review: Value = serde_json::from_str(&good).unwrap();
    let answer = world.connect().post_json("/tabs.example.com", &review);
    assert_eq!(
        answer.unwrap().json()["response"]["result"]["message"],
        "handle ConversionReview: no hook found for 'kubernetesCustomResourceConversion' event for crd/tabs.example.com"
    );
    assert_eq!(world.runs(), [""; 0]);
}
