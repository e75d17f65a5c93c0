//! What a hook wants changed, checked without a cluster: every document of the file, and every jq program in it.
//!
//! On the thread of the run. Nothing is changed and no program is applied. Programs are compiled in this process, which ends soon
//! and serves nobody else; one that nests too deeply is refused.

use std::time::Instant;

use crate::jq::Filter;
use crate::operation::{Evaluate, File, Undone, Unevaluated, check_filters};

struct Compiled;

impl Evaluate for Compiled {
    fn check(&self, programs: &[&str], _: Option<Instant>) -> Result<(), (usize, Unevaluated)> {
        for (index, program) in programs.iter().enumerate() {
            Filter::compile(program).map_err(|_| (index, Unevaluated::NoProgram))?;
        }
        Ok(())
    }

    fn apply(&self, _: &str, _: &[u8], _: Option<Instant>) -> Result<Vec<u8>, Unevaluated> {
        Err(Unevaluated::Broken("there is no cluster".to_owned()))
    }
}

pub(super) fn check(file: &[u8]) -> Result<(), Undone> {
    let file = File::read(file, &|| true).map_err(|error| Undone::Failed(error.to_string()))?;
    check_filters(&file, &Compiled, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_none_is_found() {
        let document = |program: &str| {
            format!(
                r#"{{"operation":"JQPatch","kind":"Pod","namespace":"n","name":"a","jqFilter":"{program}"}}"#
            )
        };
        assert_eq!(check(document(".a = 1").as_bytes()), Ok(()));
        let file = document(".a = 1") + &document(".a =");
        let Err(Undone::Failed(reason)) = check(file.as_bytes()) else {
            panic!("it was taken");
        };
        assert!(
            reason.contains("document 2 (JQPatch Pod/n/a): jqFilter does not compile"),
            "{reason}"
        );
    }
}
