//! Names made from other names: safe hook names for files, webhook ids and path segments for URLs.
//!
//! Pure. The first two follow the original to the letter, because users see them in temporary files and in registered paths.

use super::selector::is_subdomain;

/// LIMIT: longest path segment that the API server takes (a DNS subdomain).
const SEGMENT_MAX: usize = 253;

/// The name of a hook for temporary files: `002-cool-hooks/watch.py` becomes `002-cool-hooks-watch-py`.
pub(crate) fn safe_name(hook: &str) -> String {
    let dashed = hook.replace(['.', '/'], "-");
    let mut name = String::with_capacity(dashed.len());
    for letter in dashed.trim().chars() {
        match letter {
            ' ' | '&' | '_' | '=' | '+' | ':' => name.push('-'),
            '-' | '.' => name.push(letter),
            _ if letter.is_ascii_alphanumeric() => name.push(letter),
            _ => name.push_str(plain(letter)),
        }
    }
    collapse_dashes(&name)
}

/// The id of a webhook in the original's paths: a dash before every capital, lower case, everything unusual a dash.
pub(crate) fn webhook_id(binding: &str) -> String {
    let mut split = String::with_capacity(binding.len() + 8);
    for letter in binding.chars() {
        if letter.is_ascii_uppercase() {
            split.push('-');
        }
        split.push(letter);
    }
    let dashed: String = split
        .to_lowercase()
        .chars()
        .map(|letter| match letter {
            'a'..='z' | '0'..='9' | '-' | '/' => letter,
            _ => '-',
        })
        .collect();
    collapse_dashes(&dashed)
}

/// One segment of a path that the API server accepts in `clientConfig.service.path`: a DNS subdomain.
pub(crate) fn path_segment(name: &str) -> String {
    let dashed: String = safe_name(name)
        .to_ascii_lowercase()
        .replace('.', "-")
        .chars()
        .take(SEGMENT_MAX)
        .collect();
    let trimmed = dashed.trim_matches('-');
    if is_subdomain(trimmed) {
        trimmed.to_owned()
    } else {
        // Only a name without any letter or digit that we know gets here.
        "hook".to_owned()
    }
}

fn collapse_dashes(text: &str) -> String {
    let mut collapsed = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter != '-' || !collapsed.ends_with('-') {
            collapsed.push(letter);
        }
    }
    collapsed
}

/// A letter with an accent, without it. Everything else that is not ASCII is dropped.
fn plain(letter: char) -> &'static str {
    match letter {
        'à' | 'á' | 'â' | 'ã' | 'å' | 'ā' | 'ă' | 'ą' => "a",
        'À' | 'Á' | 'Â' | 'Ã' | 'Å' | 'Ā' | 'Ă' | 'Ą' => "A",
        'ä' | 'æ' => "ae",
        'Ä' | 'Æ' => "AE",
        'ç' | 'ć' | 'ĉ' | 'ċ' | 'č' => "c",
        'Ç' | 'Ć' | 'Ĉ' | 'Ċ' | 'Č' => "C",
        'ď' | 'đ' | 'ð' => "d",
        'Ď' | 'Đ' | 'Ð' => "D",
        'è' | 'é' | 'ê' | 'ë' | 'ē' | 'ĕ' | 'ė' | 'ę' | 'ě' => "e",
        'È' | 'É' | 'Ê' | 'Ë' | 'Ē' | 'Ĕ' | 'Ė' | 'Ę' | 'Ě' => "E",
        'ì' | 'í' | 'î' | 'ï' | 'ĩ' | 'ī' | 'ĭ' | 'į' | 'ı' => "i",
        'Ì' | 'Í' | 'Î' | 'Ï' | 'Ĩ' | 'Ī' | 'Ĭ' | 'Į' | 'İ' => "I",
        'ł' | 'ĺ' | 'ļ' | 'ľ' => "l",
        'Ł' | 'Ĺ' | 'Ļ' | 'Ľ' => "L",
        'ñ' | 'ń' | 'ņ' | 'ň' => "n",
        'Ñ' | 'Ń' | 'Ņ' | 'Ň' => "N",
        'ò' | 'ó' | 'ô' | 'õ' | 'ø' | 'ō' | 'ŏ' | 'ő' => "o",
        'Ò' | 'Ó' | 'Ô' | 'Õ' | 'Ø' | 'Ō' | 'Ŏ' | 'Ő' => "O",
        'ö' | 'œ' => "oe",
        'Ö' | 'Œ' => "OE",
        'ŕ' | 'ř' => "r",
        'Ŕ' | 'Ř' => "R",
        'ś' | 'ŝ' | 'ş' | 'š' => "s",
        'Ś' | 'Ŝ' | 'Ş' | 'Š' => "S",
        'ß' => "ss",
        'ţ' | 'ť' => "t",
        'Ţ' | 'Ť' => "T",
        'ù' | 'ú' | 'û' | 'ũ' | 'ū' | 'ŭ' | 'ů' | 'ű' | 'ų' => "u",
        'Ù' | 'Ú' | 'Û' | 'Ũ' | 'Ū' | 'Ŭ' | 'Ů' | 'Ű' | 'Ų' => "U",
        'ü' => "ue",
        'Ü' => "UE",
        'ý' | 'ÿ' => "y",
        'Ý' => "Y",
        'ź' | 'ż' | 'ž' => "z",
        'Ź' | 'Ż' | 'Ž' => "Z",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn safe_names_are_those_of_the_original() {
        for (hook, expected) in [
            (
                "002-cool-hooks/monitor-namespaces.py",
                "002-cool-hooks-monitor-namespaces-py",
            ),
            ("hook.sh", "hook-sh"),
            ("a b&c_d=e+f:g.sh", "a-b-c-d-e-f-g-sh"),
            ("  spaced.sh ", "spaced-sh"),
            ("café/naïve.sh", "cafe-naive-sh"),
            ("a--b...c//d", "a-b-c-d"),
            ("UPPER.Sh", "UPPER-Sh"),
            ("имя.sh", "-sh"),
            ("a(b)[c]{d}.sh", "abcd-sh"),
        ] {
            assert_eq!(safe_name(hook), expected, "{hook}");
        }
    }

    #[test]
    fn webhook_ids_are_those_of_the_original() {
        for (binding, expected) in [
            (
                "private-repo-policy.example.com",
                "private-repo-policy-example-com",
            ),
            (
                "myCrd.Validator.example.com",
                "my-crd-validator-example-com",
            ),
            ("Policy.Example.COM", "-policy-example-c-o-m"),
            ("importantHook", "important-hook"),
            ("hooks/nextHook", "hooks/next-hook"),
            ("weird---dashed---Name", "weird-dashed-name"),
            ("utf8 странное имя для binding", "utf8-binding"),
        ] {
            assert_eq!(webhook_id(binding), expected, "{binding}");
        }
    }

    #[test]
    fn every_path_segment_is_one_that_the_api_server_takes() {
        let (long, cut) = ("x".repeat(400), "x".repeat(SEGMENT_MAX));
        for (name, expected) in [
            ("hook.sh", "hook-sh"),
            ("002-cool-hooks/Monitor.PY", "002-cool-hooks-monitor-py"),
            ("_private.sh", "private-sh"),
            ("-dash-.sh-", "dash-sh"),
            ("имя.sh", "sh"),
            ("имя", "hook"),
            ("---", "hook"),
            ("", "hook"),
            ("Ünïcode hook.sh", "uenicode-hook-sh"),
            ("a%2fb?c=d#e.sh", "a2fbc-de-sh"),
            (long.as_str(), cut.as_str()),
        ] {
            let segment = path_segment(name);
            assert_eq!(segment, expected, "{name}");
            assert!(is_subdomain(&segment), "{segment}");
        }
    }
}
