//! Texts for people: help for someone who sees the program for the first time, the version, and the reference of all flags.
//!
//! Pure. Everything about flags is taken from the table, so that it cannot say something else than the program does.

use std::fmt::Write as _;

use super::argument::nearest;
use super::error::UsageError;
use super::flag::{self, Flag, Takes, Topic};

/// A command as it is explained.
pub(super) struct CommandText {
    pub(super) name: &'static str,
    usage: &'static str,
    summary: &'static str,
    text: &'static str,
    /// The flags it has.
    pub(super) topics: &'static [Topic],
    /// Single flags of other topics that mean something to it.
    pub(super) borrowed: &'static [&'static str],
}

pub(super) const COMMANDS: &[CommandText] = &[
    CommandText {
        name: "start",
        usage: "shell-operator [start] [flags]",
        summary: "run the operator; also what happens when no command is given",
        text: "Finds the hooks, asks each for its configuration, connects to the API server and runs the hooks\n\
               when what they asked for happens. Ends on TERM or INT: in order on the first, at once on the second.\n\
               \n\
               A flag counts more than its environment variable, and an empty variable counts as not set.\n\
               Flags can be written as --flag=value or --flag value.",
        topics: &Topic::ALL,
        borrowed: &[],
    },
    CommandText {
        name: "test",
        usage: "shell-operator test [PATH...] [--run REGEX] [-o FORM] [--no-skip] [-w] [flags]",
        summary: "run the tests that lie beside hooks, without a cluster",
        text: "A PATH is a hook, its suite NAME.tests.yaml, or a directory; without one it is the hooks directory. Cases run\n\
               in parallel, each in a directory of its own. Ends with 0 if all passed, 1 if a case failed or did not\n\
               run, 2 if a suite cannot be read.\n\
               \n\
               --run REGEX         only cases whose `hook: name` matches\n\
               -o, --output FORM   text, json, junit, sarif, tap or github\n\
               --no-skip           a case that misses a program it requires fails\n\
               -w, --watch         again whenever a hook or a suite changes, until Ctrl-C\n\
               \n\
               Example: shell-operator test hooks/ingress.sh --run 'host .* taken'",
        topics: &[Topic::Hooks],
        borrowed: &[],
    },
    CommandText {
        name: "resource",
        usage: "shell-operator resource NAME... [--api-version VERSION] [--wait DURATION] [flags]",
        summary: "show how the API server knows a kind, plural or short name",
        text: "For each NAME the group, version, plural and scope that a hook's binding would get.\n\
               \n\
               --api-version VERSION   only look in this group and version, such as apps/v1\n\
               --wait DURATION         wait this long for the API server, and for a name it does not know yet\n\
               \n\
               Example: shell-operator resource deploy Pod crontabs.stable.example.com",
        topics: &[Topic::Cluster, Topic::Log],
        borrowed: &[],
    },
    CommandText {
        name: "review",
        usage: "shell-operator review -f FILE|DIR|- [flags]",
        summary: "decide manifests with the hooks and without a cluster",
        text: "Says about every object of the manifests what the API server would say: rules, selectors and match conditions of\n\
               the webhooks, mutating hooks in order, validating hooks on the result. Exit code 0: all allowed, 1: something\n\
               is denied, 2: something could not be decided. Needs no network and writes nothing.\n\
               \n\
               -f, --filename FILE|DIR|-   manifests in YAML or JSON, also lists and AdmissionReviews; repeatable;\n\
               \x20                           directories at any depth, - for standard input\n\
               \x20   --objects FILE|DIR      what the cluster holds, such as `kubectl get ns,svc,ingress -A -o yaml`; repeatable\n\
               \x20   --operation OPERATION   CREATE, UPDATE, DELETE or CONNECT; without it UPDATE for what is among --old\n\
               \x20                           or --objects, else CREATE\n\
               \x20   --old FILE|DIR          the objects as they were before an UPDATE; repeatable\n\
               \x20   --subresource NAME      request this of the objects, such as status or scale\n\
               \x20   --namespace NAME        for objects that name none; default: default\n\
               \x20   --user NAME             who asks; default: kubernetes-admin\n\
               \x20   --groups NAME,...       groups of the user\n\
               \x20   --dry-run               ask the hooks as kubectl --dry-run=server does\n\
               \x20   --validating-webhook-failure-policy POLICY   as for `start`\n\
               -o, --output FORM           text, json, junit, sarif, tap or github\n\
               -v, --verbose               show what hooks print, also those that do not fail\n\
               \x20   --allow-unjudged        what cannot be said without a cluster is no failure\n\
               \n\
               Example: helm template chart | shell-operator review --hooks-dir=hooks -f -",
        topics: &[Topic::Hooks],
        borrowed: &["namespace", "validating-webhook-failure-policy"],
    },
    CommandText {
        name: "queue",
        usage: "shell-operator queue list [-o text|json|yaml] [-e] [-w] [-t INTERVAL] [flags]\n       \
                shell-operator queue main [-o text|json|yaml] [flags]",
        summary: "show what waits in the queues of a running operator",
        text: "The first task of a queue is the one being worked on; behind it stand those that wait for it.\n\
               \n\
               -o, --output FORM               text, json or yaml\n\
               -e, --show-empty                name the queues without tasks, too\n\
               -w, --watch                     show it again every second, until Ctrl-C\n\
               -t, --watch-interval DURATION   how often; implies --watch",
        topics: &[Topic::Inside],
        borrowed: &[],
    },
    CommandText {
        name: "hook",
        usage: "shell-operator hook list [-o text|json|yaml] [flags]\n       \
                shell-operator hook snapshot NAME [-o text|json|yaml] [flags]",
        summary: "show the hooks of a running operator, or the objects that one of them sees",
        text: "A snapshot is shown whole, Secrets included.\n\
               \n\
               -o, --output FORM   text, json or yaml",
        topics: &[Topic::Inside],
        borrowed: &[],
    },
    CommandText {
        name: "config",
        usage: "shell-operator config list [-o text|json|yaml] [flags]\n       \
                shell-operator config set NAME VALUE [DURATION] [flags]",
        summary: "show or change the log level of a running operator",
        text: "The one parameter is log.level. With a DURATION it changes back after that time; debug does so after 30m\n\
               if nothing else is said.\n\
               \n\
               -o, --output FORM   text, json or yaml\n\
               \n\
               Example: shell-operator config set log.level debug 10m",
        topics: &[Topic::Inside],
        borrowed: &[],
    },
    CommandText {
        name: "raw",
        usage: "shell-operator raw PATH [flags]",
        summary: "ask a running operator for any path of its debug socket",
        text: "Example: shell-operator raw /queue/list.json?showEmpty=true",
        topics: &[Topic::Inside],
        borrowed: &[],
    },
    CommandText {
        name: "debug-options",
        usage: "shell-operator debug-options",
        summary: "list the flags of `start` that help to find mistakes",
        text: "",
        topics: &[Topic::Inside, Topic::Debugging],
        borrowed: &[],
    },
    CommandText {
        name: "version",
        usage: "shell-operator version",
        summary: "show the version and the jq engine",
        text: "",
        topics: &[],
        borrowed: &[],
    },
];

/// The release of jaq that `Cargo.lock` names; a test compares the two.
const JAQ_VERSION: &str = "3.1.2";

/// The version, with the commit if the build knew it.
pub(crate) fn version() -> String {
    match option_env!("SHELL_OPERATOR_COMMIT") {
        Some(commit) if !commit.is_empty() => {
            format!("{} (commit {commit})", env!("CARGO_PKG_VERSION"))
        }
        _ => env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// What `shell-operator version` prints.
pub(crate) fn version_text() -> String {
    format!(
        "shell-operator {}\njqFilter implementation: using jaq {JAQ_VERSION}\n",
        version()
    )
}

/// The help page for a command, for `flags`, or the first page.
pub(super) fn page(topic: Option<&str>) -> Result<String, UsageError> {
    match topic {
        None | Some("help") => Ok(first_page()),
        Some("flags") => Ok(reference()),
        Some(name) => match COMMANDS.iter().find(|command| command.name == name) {
            Some(command) => Ok(command_page(command)),
            None => Err(UsageError::UnknownCommand {
                given: name.to_owned(),
                nearest: nearest(name, COMMANDS.iter().map(|command| command.name)),
            }),
        },
    }
}

fn first_page() -> String {
    let mut page = String::from(
        "shell-operator runs your scripts, called hooks, when something happens in a Kubernetes cluster: an object\n\
         changes, a time comes, or the API server asks whether a request is allowed.\n\
         \n\
         A hook is an executable file in any language. Called with --config it says when it wants to run:\n\
         \n\
         \x20   #!/bin/sh\n\
         \x20   if [ \"$1\" = --config ]; then\n\
         \x20     echo '{\"configVersion\": \"v1\", \"kubernetes\": [{\"kind\": \"Pod\", \"executeHookOnEvent\": [\"Added\"]}]}'\n\
         \x20   else\n\
         \x20     cat \"$BINDING_CONTEXT_PATH\"   # what happened, as JSON\n\
         \x20   fi\n\
         \n\
         Save it as hooks/pods.sh, chmod +x it, and start the operator beside it:\n\
         \n\
         \x20   shell-operator start --hooks-dir=hooks --log-type=text\n\
         \n\
         Commands:\n",
    );
    for command in COMMANDS {
        let _ = writeln!(page, "  {:<13} {}", command.name, command.summary);
    }
    let _ = writeln!(
        page,
        "  {:<13} this page, or the one of a command; `help flags` prints all flags as a table",
        "help"
    );
    page.push_str("\n`shell-operator start --help` explains every flag.\n");
    page
}

fn command_page(command: &CommandText) -> String {
    let mut page = format!(
        "Usage: {}\n\n{}\n",
        command.usage,
        sentence(command.summary)
    );
    if !command.text.is_empty() {
        let _ = write!(page, "\n{}\n", command.text);
    }
    for topic in command.topics {
        let _ = writeln!(page, "\n{}:", topic.title());
        for flag in flag::of_topic(*topic) {
            let _ = writeln!(page, "  {}", written(flag));
            let _ = writeln!(page, "      {}", sentence(flag.help));
            let _ = writeln!(page, "      {}", source(flag));
        }
    }
    page
}

/// Every flag as tables in Markdown, one per topic.
pub(crate) fn reference() -> String {
    let mut page = String::new();
    for topic in Topic::ALL {
        let _ = write!(
            page,
            "## {}\n\n| flag | environment | default | meaning |\n|---|---|---|---|\n",
            topic.title()
        );
        for flag in flag::of_topic(topic) {
            let names: Vec<String> = std::iter::once(written(flag))
                .chain(flag.other_names.iter().map(|name| format!("--{name}")))
                .map(|name| format!("`{}`", name.replace('|', "\\|")))
                .collect();
            let variables: Vec<String> = flag
                .variables
                .iter()
                .map(|name| format!("`{name}`"))
                .collect();
            let default = match flag.default {
                "" => String::new(),
                default => format!("`{default}`"),
            };
            let _ = writeln!(
                page,
                "| {} | {} | {default} | {} |",
                names.join(", "),
                variables.join(", "),
                flag.help
            );
        }
        page.push('\n');
    }
    page
}

/// The flag with what follows it.
fn written(flag: &Flag) -> String {
    match flag.takes {
        Takes::Switch => format!("--{}", flag.name),
        Takes::One(placeholder) => format!("--{}={placeholder}", flag.name),
        Takes::Many(placeholder) => format!("--{}={placeholder} (repeatable)", flag.name),
    }
}

/// Where else the value can come from.
fn source(flag: &Flag) -> String {
    let mut source = format!("env {}", flag.variables.first().unwrap_or(&"none"));
    if !flag.default.is_empty() {
        let _ = write!(source, ", default {}", flag.default);
    }
    source
}

/// With a capital letter and a full stop.
fn sentence(phrase: &str) -> String {
    let mut letters = phrase.chars();
    let first = letters.next().map(|letter| letter.to_uppercase());
    first
        .into_iter()
        .flatten()
        .chain(letters)
        .chain(['.'])
        .collect()
}
