//! Filters that take out of a text what says nothing to whoever reads a denial: colours, times, process numbers, paths, and what
//! HAProxy prints around its errors. Pure functions from text to text, on the thread that decides the review.
//!
//! They make a text shorter and never judge it. A filter that finds nothing of its own leaves the text as it is.

use crate::hook::explain::TextFilter;

/// Applies filters in the order of the configuration.
pub(super) fn clean(text: &str, filters: &[TextFilter]) -> String {
    let cleaned = filters
        .iter()
        .fold(text.to_owned(), |text, filter| match filter {
            TextFilter::Ansi => ansi(&text),
            TextFilter::Timestamps => by_line(&text, timestamps),
            TextFilter::Pids => by_line(&text, pids),
            TextFilter::Paths => by_line(&text, paths),
            TextFilter::Haproxy => haproxy(&text),
        });
    cleaned.trim().to_owned()
}

fn by_line(text: &str, filter: impl Fn(&str) -> String) -> String {
    let lines: Vec<String> = text.lines().map(filter).collect();
    lines.join("\n")
}

/// Escape sequences of terminals, and control characters other than tabs and the ends of lines.
fn ansi(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' => match letters.next() {
                // Parameters, then one letter that ends it.
                Some('[') => {
                    while letters
                        .next()
                        .is_some_and(|next| !('@'..='~').contains(&next))
                    {}
                }
                // A title, until the bell or the next escape.
                Some(']') => {
                    while letters
                        .next()
                        .is_some_and(|next| next != '\u{7}' && next != '\u{1b}')
                    {
                    }
                }
                _ => {}
            },
            '\n' | '\t' => clean.push(letter),
            control if control.is_control() => {}
            other => clean.push(other),
        }
    }
    clean
}

/// Times at the beginning of a line, in brackets or not. `0` is a digit, `M` any letter, `?` a blank or a `T`.
const TIMES: [&str; 5] = [
    "0000-00-00?00:00:00",
    "0000/00/00?00:00:00",
    "MMM 00 00:00:00",
    "00:00:00",
    // Day of the year and time, as older releases of HAProxy have it.
    "000/000000",
];

fn timestamps(line: &str) -> String {
    let bare = line.strip_prefix('[').unwrap_or(line);
    let Some(rest) = TIMES.iter().find_map(|time| after(bare, time)) else {
        return line.to_owned();
    };
    let digits = |text: &str| {
        text.chars()
            .take_while(char::is_ascii_digit)
            .map(char::len_utf8)
            .sum::<usize>()
    };
    let mut rest = rest;
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        rest = fraction.get(digits(fraction)..).unwrap_or_default();
    }
    rest = rest
        .strip_prefix('Z')
        .or_else(|| rest.strip_prefix(" UTC"))
        .or_else(|| after(rest, "+00:00"))
        .or_else(|| after(rest, "-00:00"))
        .unwrap_or(rest);
    rest.strip_prefix(']')
        .unwrap_or(rest)
        .trim_start()
        .to_owned()
}

/// What follows a pattern that the text begins with.
fn after<'a>(text: &'a str, pattern: &str) -> Option<&'a str> {
    let mut letters = text.chars();
    for wanted in pattern.chars() {
        let letter = letters.next()?;
        let fits = match wanted {
            '0' => letter.is_ascii_digit(),
            'M' => letter.is_ascii_alphabetic(),
            '?' => matches!(letter, ' ' | 'T'),
            exact => letter == exact,
        };
        if !fits {
            return None;
        }
    }
    Some(letters.as_str())
}

/// `name[123]:`, `(123) :` and `pid 123`. A number in brackets that nothing makes a process number stays.
fn pids(line: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(letter) = rest.chars().next() {
        if let Some(behind) = bracketed(rest).or_else(|| spelled_out(rest, &clean)) {
            // `(123) : text` leaves no blank before the colon.
            if behind.trim_start().starts_with(':') {
                let kept = clean.trim_end().len();
                clean.truncate(kept);
            }
            rest = behind;
            continue;
        }
        clean.push(letter);
        rest = rest.get(letter.len_utf8()..).unwrap_or_default();
    }
    clean.trim_start_matches([' ', ':']).to_owned()
}

fn bracketed(text: &str) -> Option<&str> {
    let (open, close) = if text.starts_with('(') {
        ('(', ')')
    } else {
        ('[', ']')
    };
    let inside = text.strip_prefix(open)?;
    let behind = inside
        .trim_start_matches(|letter: char| letter.is_ascii_digit())
        .strip_prefix(close)?;
    let is_number = inside.starts_with(|letter: char| letter.is_ascii_digit());
    let behind = behind.trim_start_matches(' ');
    (is_number && behind.starts_with(':')).then_some(behind)
}

fn spelled_out<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    if before.ends_with(|letter: char| letter.is_alphanumeric()) {
        return None;
    }
    let behind = text
        .strip_prefix("pid")
        .or_else(|| text.strip_prefix("PID"))?
        .trim_start_matches([' ', '=', ':']);
    let rest = behind.trim_start_matches(|letter: char| letter.is_ascii_digit());
    (rest.len() < behind.len()).then_some(rest)
}

/// Absolute paths of several parts are reduced to their last one.
fn paths(line: &str) -> String {
    let ends = |letter: char| letter.is_whitespace() || "'\"`<>()[]{},;".contains(letter);
    let mut clean = String::with_capacity(line.len());
    let mut rest = line;
    let mut at_edge = true;
    while let Some(letter) = rest.chars().next() {
        if letter == '/' && at_edge {
            let end = rest.find(ends).unwrap_or(rest.len());
            let (path, behind) = rest.split_at_checked(end).unwrap_or((rest, ""));
            let trimmed = path.trim_end_matches('/');
            let base = trimmed.rsplit('/').next().unwrap_or_default();
            let several = trimmed.matches('/').count() > 1;
            clean.push_str(if several { base } else { path });
            rest = behind;
            at_edge = false;
            continue;
        }
        at_edge = ends(letter) || letter == '=';
        clean.push(letter);
        rest = rest.get(letter.len_utf8()..).unwrap_or_default();
    }
    clean
}

/// What HAProxy says at the end of every failed check.
const SUMMARIES: [&str; 3] = [
    "Error(s) found in configuration file",
    "Fatal errors found in configuration",
    "Failed to initialize server(s) addr",
];

/// The alerts of `haproxy -c`, and the lines below them that belong to them; nothing around them. HX-43, HX-46.
fn haproxy(text: &str) -> String {
    let is_message = |line: &str| {
        ["[ALERT]", "[WARNING]", "[NOTICE]"]
            .iter()
            .any(|level| line.starts_with(level))
    };
    if !text.lines().any(is_message) {
        return text.to_owned();
    }
    let mut kept: Vec<String> = Vec::new();
    let mut in_alert = false;
    for line in text.lines() {
        if is_message(line) {
            let alert = line.strip_prefix("[ALERT]").map(description);
            let alert = alert.filter(|text| !SUMMARIES.iter().any(|end| text.starts_with(end)));
            in_alert = alert.is_some();
            kept.extend(alert);
        } else if in_alert && line.starts_with(' ') {
            let line = line.trim_end();
            kept.push(paths(line.strip_prefix("   | ").unwrap_or(line)));
        } else {
            in_alert = false;
        }
    }
    kept.join("\n")
}

/// The text of a message behind its time, process number, section and place.
fn description(line: &str) -> String {
    let line = timestamps(line.trim_start());
    let line = pids(&line);
    let line = line.strip_prefix("config :").unwrap_or(&line).trim_start();
    let place = line
        .strip_prefix("parsing ")
        .or_else(|| line.strip_prefix("Parsing "))
        .unwrap_or(line);
    let behind = place
        .strip_prefix('[')
        .and_then(|inside| inside.split_once(']'))
        .map(|(_, behind)| behind.trim_start().trim_start_matches(':').trim_start());
    paths(behind.unwrap_or(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by HAProxy 2.6.12 of Debian 12, and what is left.
    const CAPTURED: [(&str, &str); 10] = [
        (
            "parsing [acl.cfg:9] : error detected while parsing ACL 'a' : unknown fetch method 'hdr_bogus' in ACL expression 'hdr_bogus(host)'.",
            "error detected while parsing ACL 'a' : unknown fetch method 'hdr_bogus' in ACL expression 'hdr_bogus(host)'.",
        ),
        (
            "parsing [/tmp/x/crt.cfg:8] : 'bind :8443' in section 'frontend' : unable to stat SSL certificate from file '/nonexistent/cert.pem' : No such file or directory.",
            "'bind :8443' in section 'frontend' : unable to stat SSL certificate from file 'cert.pem' : No such file or directory.",
        ),
        (
            "Parsing [dup.cfg:12]: backend 'b' has the same name as backend 'b' declared at dup.cfg:10.",
            "backend 'b' has the same name as backend 'b' declared at dup.cfg:10.",
        ),
        (
            "parsing [keyword.cfg:9] : unknown keyword 'defalt_backend' in 'frontend' section; did you mean 'default_backend' maybe ?",
            "unknown keyword 'defalt_backend' in 'frontend' section; did you mean 'default_backend' maybe ?",
        ),
        (
            "Parsing [map.cfg:9]: failed to parse use_backend rule '%[req.hdr(host),map(hosts.map)]' : failed to open pattern file <hosts.map>.",
            "failed to parse use_backend rule '%[req.hdr(host),map(hosts.map)]' : failed to open pattern file <hosts.map>.",
        ),
        (
            "Proxy 'f': unable to find required use_backend: 'nope'.",
            "Proxy 'f': unable to find required use_backend: 'nope'.",
        ),
        (
            "[weight.cfg:11] : 'server b/s' : weight of server s is not within 0 and 256 (300)..",
            "'server b/s' : weight of server s is not within 0 and 256 (300)..",
        ),
        (
            "[port.cfg:11] : 'server b/s' : invalid port '99999'",
            "'server b/s' : invalid port '99999'",
        ),
        (
            "[resolve.cfg:11] : 'server b/s' : could not resolve address 'no-such-host.invalid'.",
            "'server b/s' : could not resolve address 'no-such-host.invalid'.",
        ),
        (
            "parsing [timeout.cfg:9] : unexpected character 'a' in 'timeout client'",
            "unexpected character 'a' in 'timeout client'",
        ),
    ];

    fn printed(alert: &str) -> String {
        format!(
            "[NOTICE]   (25372) : haproxy version is 2.6.12-1+deb12u4\n\
             [NOTICE]   (25372) : path to executable is /usr/sbin/haproxy\n\
             [ALERT]    (25372) : config : {alert}\n\
             [ALERT]    (25372) : config : Error(s) found in configuration file : acl.cfg\n\
             [ALERT]    (25372) : config : Fatal errors found in configuration.\n"
        )
    }

    #[test]
    fn of_a_failed_check_the_descriptions_are_left_hx_43_hx_46() {
        for (alert, expected) in CAPTURED {
            assert_eq!(clean(&printed(alert), &[TextFilter::Haproxy]), expected);
        }
    }

    #[test]
    fn lines_below_an_alert_stay_and_warnings_go() {
        let text = "[WARNING]  (25432) : config : missing timeouts for frontend 'f'.\n   \
                    | While not properly invalid, you will certainly encounter various problems\n\
                    [ALERT]    (25402) : config : parsing [newline.cfg:12]: unmatched quote at position 29:\n  \
                    http-request set-header X \"unclosed\n                            ^\n\
                    [ALERT]    (25402) : config : Fatal errors found in configuration.\n";
        let expected = "unmatched quote at position 29:\n  http-request set-header X \"unclosed\n                            ^";
        assert_eq!(clean(text, &[TextFilter::Haproxy]), expected);
    }

    #[test]
    fn older_releases_print_the_day_and_time() {
        let text =
            "[ALERT] 321/020204 (77) : parsing [x.cfg:3] : unknown keyword 'a' out of section.";
        assert_eq!(
            clean(text, &[TextFilter::Haproxy]),
            "unknown keyword 'a' out of section."
        );
    }

    #[test]
    fn other_texts_are_none_of_its_business() {
        let text = "Service 'api' not found";
        assert_eq!(clean(text, &[TextFilter::Haproxy]), text);
    }

    #[test]
    fn each_filter_takes_out_what_it_is_called_after() {
        let cases = [
            (
                TextFilter::Ansi,
                "\u{1b}[1;31mred\u{1b}[0m\u{7} \u{1b}]0;title\u{7}plain",
                "red plain",
            ),
            (
                TextFilter::Timestamps,
                "2026-11-17T02:02:04.123Z failed",
                "failed",
            ),
            (
                TextFilter::Timestamps,
                "[2026-11-17 02:02:04+01:00] failed",
                "failed",
            ),
            (
                TextFilter::Timestamps,
                "Nov 17 02:02:04 host failed\n02:02:04 again",
                "host failed\nagain",
            ),
            (
                TextFilter::Timestamps,
                "at 02:02:04 it failed",
                "at 02:02:04 it failed",
            ),
            (
                TextFilter::Pids,
                "nginx[123]: failed (300)",
                "nginx: failed (300)",
            ),
            (TextFilter::Pids, "(123) : failed", "failed"),
            (
                TextFilter::Pids,
                "worker (pid 123) failed",
                "worker () failed",
            ),
            (TextFilter::Pids, "rapid 5 things", "rapid 5 things"),
            (
                TextFilter::Paths,
                "open '/etc/haproxy/x.cfg': no",
                "open 'x.cfg': no",
            ),
            (
                TextFilter::Paths,
                "GET /healthz https://a/b/c",
                "GET /healthz https://a/b/c",
            ),
            (
                TextFilter::Paths,
                "file=/a/b/c.sh: line 3",
                "file=c.sh: line 3",
            ),
        ];
        for (filter, text, expected) in cases {
            assert_eq!(clean(text, &[filter]), expected, "{filter:?}");
        }
    }

    #[test]
    fn no_text_makes_a_filter_panic() {
        let all = [TextFilter::PLAIN.as_slice(), &[TextFilter::Haproxy]].concat();
        for text in [
            "",
            "[",
            "(",
            "(1",
            "[1]",
            "pid",
            "\u{1b}",
            "\u{1b}[",
            "/",
            "//",
            "é[1]:",
            "[ALERT]",
            "[ALERT] [",
            "[2026",
        ] {
            let _ = clean(text, &all);
        }
    }
}
