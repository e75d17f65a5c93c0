//! `scripts/bench offline`: what `review` adds to the bare cost of running hooks.
//!
//! A thousand manifests and five hooks of sh are five thousand runs. Floor: the same runs as bare fork+exec with the files that a hook is
//! promised, on as many threads as there are cores. Both are measured in one run, in turns, so that the ratio means something on any
//! machine. The aim is 1.2.

use std::time::{Duration, Instant};

use crate::admission::floor;
use crate::support::Env;

const MANIFESTS: usize = 1000;
const HOOKS: usize = 5;
const TURNS: usize = 3;

/// The least a hook can do, for every ConfigMap.
const HOOK: &str = r#"#!/bin/sh
if [ "$1" = --config ]; then
cat <<'CONFIG'
configVersion: v1
kubernetesValidating:
- name: NAME.bench.example.com
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}
CONFIG
exit 0
fi
echo '{"allowed":true}' > "$VALIDATING_RESPONSE_PATH"
"#;

pub(crate) fn run() {
    let env = Env::new();
    let mut hook = None;
    for number in 0..HOOKS {
        let script = HOOK.replace("NAME", &format!("hook-{number}"));
        hook = Some(env.write_hook(&format!("hook-{number}.sh"), &script));
    }
    let manifests: Vec<String> = (0..MANIFESTS)
        .map(|number| {
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: map-{number}\n  labels: {{app: bench}}\ndata:\n  key: value\n"
            )
        })
        .collect();
    env.write("manifests.yaml", manifests.join("---\n"));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut bare, mut reviewed) = (Duration::MAX, Duration::MAX);
    for turn in 1..=TURNS {
        let floor = floor(&hook.clone().unwrap(), env.path(), cores, MANIFESTS * HOOKS);
        let began = Instant::now();
        let output = env.run(&["review", "-f", "manifests.yaml"]);
        let elapsed = began.elapsed();
        assert_eq!(output.code, Some(0), "{}", output.all());
        let asked = format!(
            "{MANIFESTS} objects, {} answers: all allowed",
            MANIFESTS * HOOKS
        );
        assert!(output.stdout.contains(&asked), "{}", output.all());
        println!(
            "turn {turn}: bare {:.2} s, review {:.2} s, ratio {:.2}",
            floor.elapsed.as_secs_f64(),
            elapsed.as_secs_f64(),
            elapsed.as_secs_f64() / floor.elapsed.as_secs_f64()
        );
        bare = bare.min(floor.elapsed);
        reviewed = reviewed.min(elapsed);
    }
    println!(
        "\n{MANIFESTS} manifests x {HOOKS} hooks on {cores} cores: bare {:.2} s, review {:.2} s, ratio {:.2} (aim 1.2)",
        bare.as_secs_f64(),
        reviewed.as_secs_f64(),
        reviewed.as_secs_f64() / bare.as_secs_f64()
    );
}
