//! What a conversion hook made, held against what it was given.
//!
//! Pure. The same rules as in a cluster: as many objects, none of them another one, all in the version that was asked for. What breaks
//! one is told as the user of the cluster would read it.

use serde_json::Value;

use crate::hook::response::ConversionAnswer;

/// What no conversion may change.
const IDENTITY: [&str; 4] = [
    "/kind",
    "/metadata/namespace",
    "/metadata/name",
    "/metadata/uid",
];

/// The `apiVersion` of a version of a CRD, whose name is `<plural>.<group>`.
pub(super) fn desired(crd_name: &str, version: &str) -> String {
    match crd_name.split_once('.') {
        Some((_, group)) if !version.contains('/') => format!("{group}/{version}"),
        _ => version.to_owned(),
    }
}

/// The objects, or why there are none.
pub(super) fn converted(
    response: &[u8],
    given: &[Value],
    desired: &str,
) -> Result<Vec<Value>, String> {
    let made = match ConversionAnswer::parse(response) {
        Ok(ConversionAnswer::Converted(made)) => made,
        Ok(ConversionAnswer::Failed(message)) => return Err(message),
        Err(error) => return Err(error.to_string()),
    };
    if made.len() != given.len() {
        return Err(format!(
            "hook returned {} objects instead of {}",
            made.len(),
            given.len()
        ));
    }
    let mut objects = Vec::with_capacity(made.len());
    for (made, given) in made.iter().zip(given) {
        let object: Value = serde_json::from_str(made.get()).map_err(|error| error.to_string())?;
        for path in IDENTITY {
            if object.pointer(path) != given.pointer(path) {
                let field = path.trim_start_matches('/').replace('/', ".");
                return Err(format!("hook changed {field}"));
            }
        }
        let version = object.get("apiVersion").and_then(Value::as_str);
        if version != Some(desired) {
            let version = version.unwrap_or_default();
            return Err(format!(
                "hook returned '{version}' where '{desired}' is wanted"
            ));
        }
        objects.push(object);
    }
    Ok(objects)
}
