//! The HAProxy example through a real API server: what a user reads of each phase, and that the configuration is the one that the
//! cluster would have (HX-29, HX-30, HX-32, HX-36, HX-40, HX-45, HX-46).

use serde_json::{Value, json};

use crate::support::stage::message;
use crate::support::{Answer, SOON, Stage, wait_for};

/// What HAProxy says about a word it does not know.
const BALANCE: &str = "balance only supports 'roundrobin', 'static-rr', 'leastconn', 'source', 'uri', 'url_param', 'hdr(name)' and 'rdp-cookie(name)' options.";

struct World {
    stage: Stage<'static>,
    namespace: String,
}

impl World {
    /// The shipped hook, in a namespace that opted in. Its own label and names are replaced, so that stages do not meet.
    fn new(name: &str) -> World {
        let repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("hooks");
        let read = |file: &str| std::fs::read_to_string(repository.join(file)).unwrap();
        let stage = Stage::new(name);
        let namespace = format!("{}-shop", stage.label);
        let domain = format!("{}.haproxy.example.com", stage.label);
        let hook = read("haproxy/ingress.py")
            .replace("haproxy.example.com", &domain)
            .replace("policy.example.com", &domain);
        stage
            .env
            .write_hook("lib/shell_operator.py", &read("lib/shell_operator.py"));
        stage.env.write_hook("haproxy/ingress.py", &hook);
        std::fs::write(
            stage.env.hooks_dir().join("haproxy/tests.json"),
            read("haproxy/tests.json"),
        )
        .unwrap();
        stage.make_namespace(&namespace, &json!({ format!("{domain}/enforce"): "true" }));
        World { stage, namespace }
    }

    fn ingresses(&self) -> String {
        format!(
            "/apis/networking.k8s.io/v1/namespaces/{}/ingresses",
            self.namespace
        )
    }

    fn services(&self) -> String {
        format!("/api/v1/namespaces/{}/services", self.namespace)
    }

    fn ingress(&self, name: &str, host: &str, service: &str, balance: &str) -> Value {
        let mut annotations = json!({});
        if !balance.is_empty() {
            annotations[format!("{}.haproxy.example.com/balance", self.stage.label)] =
                json!(balance);
        }
        let backend = json!({ "service": { "name": service, "port": { "number": 80 } } });
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": name, "annotations": annotations },
            "spec": { "rules": [{ "host": host, "http": { "paths": [{ "path": "/", "pathType": "Prefix", "backend": backend }] } }] },
        })
    }

    fn create(&self, name: &str, host: &str, service: &str, balance: &str) -> Answer {
        self.stage.api.create(
            &self.ingresses(),
            &self.ingress(name, host, service, balance),
        )
    }

    /// What the user reads behind the API server's own words.
    #[track_caller]
    fn refused(&self, answer: &Answer) -> String {
        assert_eq!(answer.status, 403, "{}", answer.text());
        let start = format!(
            "admission webhook \"ingress.{}.haproxy.example.com\" denied the request: ",
            self.stage.label
        );
        let text = message(answer);
        text.strip_prefix(&start)
            .unwrap_or_else(|| panic!("{text}"))
            .to_owned()
    }
}

#[test]
fn a_cluster_that_haproxy_cannot_serve_is_refused_in_words_for_people() {
    let world = World::new("haproxy");
    let operator = world.stage.start();
    let missing = world.create("web", "a.example.com", "api", "");
    assert_eq!(world.refused(&missing), "Service 'api' not found");

    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "api" }, "spec": { "ports": [{ "port": 80 }] } });
    let made = world.stage.api.create(&world.services(), &service);
    assert_eq!(made.status, 201, "{}", made.text());
    wait_for("the Service to be in the snapshot", SOON, || {
        let dry = format!("{}?dryRun=All", world.ingresses());
        world
            .stage
            .api
            .create(&dry, &world.ingress("web", "a.example.com", "api", ""))
            .status
            == 201
    });
    let odd = world.refused(&world.create("web", "a.example.com", "api", "bogus"));
    assert_eq!(odd, BALANCE);

    let good = world.create("web", "a.example.com", "api", "leastconn");
    assert_eq!(good.status, 201, "{}", good.text());
    wait_for("the Ingress to be in the snapshot", SOON, || {
        world.create("second", "a.example.com", "api", "").status == 403
    });
    let second = world.refused(&world.create("second", "a.example.com", "api", ""));
    assert_eq!(
        second,
        "host 'a.example.com' with path '/' is in Ingress 'second' and in Ingress 'web'"
    );
    // An update is the Ingress once and not twice, which HAProxy would refuse.
    let path = format!("{}/web", world.ingresses());
    let updated = world
        .stage
        .api
        .merge(&path, &json!({ "metadata": { "labels": { "a": "b" } } }));
    assert_eq!(updated.status, 200, "{}", updated.text());
    // A Service that an Ingress needs stays.
    let kept = world.stage.api.delete(&format!("{}/api", world.services()));
    assert_eq!(world.refused(&kept), "Service 'api' not found");
    assert_eq!(world.stage.api.delete(&path).status, 200);
    wait_for("the Service to be free", SOON, || {
        world
            .stage
            .api
            .delete(&format!("{}/api", world.services()))
            .status
            == 200
    });
    for phase in ["render", "syntax"] {
        operator.wait_log(phase, |line| {
            line.label("phase") == Some(phase) && line.label("hook") == Some("haproxy/ingress.py")
        });
    }
}
