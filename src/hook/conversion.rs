//! Which hooks convert which versions of a custom resource, and the shortest way from one version to another.
//!
//! Pure. Made once when the conversion server is set up, read by executor threads afterwards. A rule may name its versions with the
//! group of the CRD or without; both spellings are one version, and a version of another group is never the same.

use std::collections::{BTreeMap, HashMap};

use super::Hook;
use super::binding::ConversionRule;

/// One rule of a hook, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConversionStep {
    /// Index into the registry's hooks.
    pub(crate) hook: usize,
    /// Index into the hook's conversion bindings.
    pub(crate) binding: usize,
    /// As the hook wrote it, which is how it is told.
    pub(crate) rule: ConversionRule,
    from: String,
    to: String,
}

impl ConversionStep {
    /// How many of the two versions are written with their group.
    fn qualified(&self) -> usize {
        [&self.rule.from, &self.rule.to]
            .iter()
            .filter(|version| version.contains('/'))
            .count()
    }
}

/// All rules for one CRD.
#[derive(Debug, Default)]
pub(crate) struct Chains {
    group: String,
    /// At most one for each pair of versions, in hook order.
    pub(crate) steps: Vec<ConversionStep>,
    /// Rules for a pair of versions that another rule is used for.
    pub(crate) unused: Vec<ConversionStep>,
}

/// The ways of every version to one version.
#[derive(Debug)]
pub(crate) struct Way<'a> {
    chains: &'a Chains,
    goal: String,
    /// By version: the number of steps, and the first of them.
    first: HashMap<&'a str, (usize, &'a ConversionStep)>,
}

/// The rules of all hooks by the name of their CRD.
pub(crate) fn chains(hooks: &[Hook]) -> BTreeMap<String, Chains> {
    let mut all: BTreeMap<String, Chains> = BTreeMap::new();
    for (hook_index, hook) in hooks.iter().enumerate() {
        for (binding_index, binding) in hook.config.conversions.iter().enumerate() {
            let chains = all
                .entry(binding.crd_name.clone())
                .or_insert_with(|| Chains::new(&binding.crd_name));
            for rule in &binding.rules {
                chains.add(hook_index, binding_index, rule);
            }
        }
    }
    all
}

impl Chains {
    fn new(crd_name: &str) -> Chains {
        Chains {
            group: group(crd_name).to_owned(),
            steps: Vec::new(),
            unused: Vec::new(),
        }
    }

    /// Of several rules for the same two versions the one that is written in full counts, then the last one, as in the original.
    fn add(&mut self, hook: usize, binding: usize, rule: &ConversionRule) {
        let step = ConversionStep {
            hook,
            binding,
            rule: rule.clone(),
            from: bare(&self.group, &rule.from).to_owned(),
            to: bare(&self.group, &rule.to).to_owned(),
        };
        let mut known = self.steps.iter_mut();
        match known.find(|known| known.from == step.from && known.to == step.to) {
            Some(known) if known.qualified() > step.qualified() => self.unused.push(step),
            Some(known) => self.unused.push(std::mem::replace(known, step)),
            None => self.steps.push(step),
        }
    }

    /// The shortest ways to `goal`, found breadth first from there; of equally short ones the one whose rule was declared first.
    pub(crate) fn toward(&self, goal: &str) -> Way<'_> {
        let goal = bare(&self.group, goal);
        let mut first: HashMap<&str, (usize, &ConversionStep)> = HashMap::new();
        let mut reached: Vec<&str> = vec![goal];
        let mut distance = 0;
        while !reached.is_empty() {
            distance += 1;
            let mut next = Vec::new();
            for step in &self.steps {
                let from = step.from.as_str();
                let is_new = from != goal && !first.contains_key(from);
                if is_new && reached.contains(&step.to.as_str()) {
                    first.insert(from, (distance, step));
                    next.push(from);
                }
            }
            reached = next;
        }
        Way {
            chains: self,
            goal: goal.to_owned(),
            first,
        }
    }
}

impl Chains {
    /// What does not fit a CRD that serves and stores these versions, each as a sentence with the remedy.
    pub(crate) fn misfits(&self, served: &[&str], stored: &str) -> Vec<String> {
        let mut misfits = Vec::new();
        for step in &self.steps {
            for version in [&step.from, &step.to] {
                // One that is stored may still have to be converted, though nobody can ask for it.
                if !served.contains(&version.as_str()) && version != stored {
                    misfits.push(format!(
                        "the conversion from {} to {} is of no use, because version {version} is not served; check the versions of the hook and of the CustomResourceDefinition",
                        step.from, step.to
                    ));
                }
            }
        }
        for version in served.iter().filter(|&version| *version != stored) {
            for (from, to) in [(stored, *version), (*version, stored)] {
                if self.toward(to).length(from).is_none() {
                    misfits.push(format!(
                        "no conversion leads from {from} to {to}, so requests for {version} fail; add {{fromVersion: {from}, toVersion: {to}}} to `conversions` of a hook"
                    ));
                }
            }
        }
        misfits
    }
}

impl<'a> Way<'a> {
    /// How many steps it takes from `version`; none if there is no way.
    pub(crate) fn length(&self, version: &str) -> Option<usize> {
        let version = bare(&self.chains.group, version);
        if version == self.goal {
            return Some(0);
        }
        self.first.get(version).map(|(length, _)| *length)
    }

    /// The first step from `version`.
    pub(crate) fn next(&self, version: &str) -> Option<&'a ConversionStep> {
        let version = bare(&self.chains.group, version);
        self.first.get(version).map(|(_, step)| *step)
    }
}

/// The group of a CRD, whose name is `<plural>.<group>`.
pub(super) fn group(crd_name: &str) -> &str {
    crd_name.split_once('.').map_or("", |(_, group)| group)
}

/// A version without its group, if the group is this one.
pub(super) fn bare<'a>(group: &str, version: &'a str) -> &'a str {
    match version.split_once('/') {
        Some((written, short)) if written == group => short,
        _ => version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRD: &str = "crontabs.stable.example.com";

    /// Chains of rules, each of a hook of its own.
    fn chains(rules: &[(&str, &str)]) -> Chains {
        let mut chains = Chains::new(CRD);
        for (hook, (from, to)) in rules.iter().enumerate() {
            let rule = ConversionRule {
                from: (*from).to_owned(),
                to: (*to).to_owned(),
            };
            chains.add(hook, 0, &rule);
        }
        chains
    }

    /// The hooks that are run on the way, in order.
    fn walk(chains: &Chains, from: &str, to: &str) -> Option<Vec<usize>> {
        let way = chains.toward(to);
        let mut at = from.to_owned();
        let mut hooks = Vec::new();
        let length = way.length(from)?;
        while let Some(step) = way.next(&at) {
            hooks.push(step.hook);
            at.clone_from(&step.to);
        }
        assert_eq!(hooks.len(), length);
        Some(hooks)
    }

    #[test]
    fn the_shortest_chain_is_found() {
        let line = [
            ("v1alpha1", "v1beta1"),
            ("v1beta1", "v1"),
            ("v1", "v1beta1"),
            ("v1beta1", "v1alpha1"),
        ];
        let diamond = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")];
        let shortcut = [("a", "b"), ("b", "c"), ("c", "d"), ("a", "c")];
        let cycle = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")];
        type Case<'a> = (
            &'a [(&'a str, &'a str)],
            &'a str,
            &'a str,
            Option<&'a [usize]>,
        );
        let cases: [Case<'_>; 14] = [
            (&line, "v1alpha1", "v1", Some(&[0, 1])),
            (&line, "v1", "v1alpha1", Some(&[2, 3])),
            (&line, "v1beta1", "v1", Some(&[1])),
            (&line, "v1", "v1", Some(&[])),
            (&line, "v1alpha1", "v2", None),
            (&line, "v0", "v1", None),
            // Found by its end only, never by a part of its name.
            (&[("v1beta1", "v2"), ("v1", "v3")], "v1", "v2", None),
            (&diamond, "a", "d", Some(&[0, 2])),
            (&diamond, "d", "a", None),
            (&shortcut, "a", "d", Some(&[3, 2])),
            (&cycle, "a", "d", Some(&[0, 1, 3])),
            (&cycle, "d", "a", None),
            (&[("a", "a")], "a", "b", None),
            (&[], "a", "b", None),
        ];
        for (rules, from, to, expected) in cases {
            let found = walk(&chains(rules), from, to);
            assert_eq!(found.as_deref(), expected, "{rules:?}: {from} to {to}");
        }
    }

    #[test]
    fn versions_with_and_without_the_group_are_the_same_and_those_of_another_group_are_not() {
        let mixed = chains(&[
            ("stable.example.com/v1alpha1", "v1beta1"),
            ("v1beta1", "stable.example.com/v1"),
            ("other.example.com/v1", "v2"),
        ]);
        for from in ["v1alpha1", "stable.example.com/v1alpha1"] {
            for to in ["v1", "stable.example.com/v1"] {
                assert_eq!(walk(&mixed, from, to), Some(vec![0, 1]), "{from} to {to}");
            }
        }
        assert_eq!(walk(&mixed, "v1", "v2"), None);
        assert_eq!(walk(&mixed, "other.example.com/v1", "v2"), Some(vec![2]));
        assert_eq!(walk(&mixed, "other.example.com/v1alpha1", "v1"), None);
    }

    #[test]
    fn what_does_not_fit_the_crd_is_told_with_the_remedy() {
        let good = chains(&[("v1", "v2"), ("stable.example.com/v2", "v1")]);
        assert_eq!(good.misfits(&["v1", "v2"], "v2"), Vec::<String>::new());
        // One that is stored and no more served.
        assert_eq!(good.misfits(&["v1"], "v2"), Vec::<String>::new());
        assert_eq!(
            good.misfits(&["v2"], "v2"),
            [("v1", "v2"), ("v2", "v1")].map(|(from, to)| format!(
                "the conversion from {from} to {to} is of no use, because version v1 is not served; check the versions of the hook and of the CustomResourceDefinition"
            ))
        );
        let one_way = chains(&[("v1", "v2")]);
        assert_eq!(
            one_way.misfits(&["v1", "v2"], "v2"),
            [
                "no conversion leads from v2 to v1, so requests for v1 fail; add {fromVersion: v2, toVersion: v1} to `conversions` of a hook"
            ]
        );
    }

    #[test]
    fn of_the_same_rule_twice_the_one_in_full_counts_and_then_the_last() {
        let full = "stable.example.com/v2";
        for (rules, expected) in [
            ([("v1", "v2"), ("v1", "v2")], 1),
            ([("v1", full), ("v1", "v2")], 0),
            ([("v1", "v2"), ("v1", full)], 1),
        ] {
            let chains = chains(&rules);
            let walked = walk(&chains, "v1", "v2");
            assert_eq!(walked, Some(vec![expected]), "{rules:?}");
            assert_eq!(chains.unused[0].hook, 1 - expected);
        }
    }
}
