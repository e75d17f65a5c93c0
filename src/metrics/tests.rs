//! Both pages, judged by their text: types, labels that grow, groups that are replaced, limits.

use super::*;

fn labelled(labels: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |text: &str| text.to_owned();
    let pairs = labels.iter();
    pairs
        .map(|(name, value)| (owned(name), owned(value)))
        .collect()
}

fn operation(
    name: &str,
    labels: &[(&str, &str)],
    group: Option<&str>,
    change: Change,
) -> Operation {
    Operation {
        name: name.to_owned(),
        labels: labelled(labels),
        group: group.map(str::to_owned),
        change,
    }
}

/// The lines of a page that are series.
fn series(page: &str) -> Vec<&str> {
    page.lines().filter(|line| !line.starts_with('#')).collect()
}

#[track_caller]
fn check(metrics: &Metrics, expected: &[&str]) {
    assert_eq!(series(&metrics.render_hooks()), expected);
}

#[test]
fn counters_gauges_and_histograms_render_as_prometheus_reads_them() {
    let metrics = Metrics::new("p_");
    metrics.add("runs_total", &[("hook", "a \"b\"\n")], 0.0);
    metrics.add("runs_total", &[("hook", "a \"b\"\n")], 2.0);
    metrics.set("length", &[], 3.5);
    metrics.set("d8_{PREFIX}other", &[], 1.0);
    metrics.observe("seconds", &[("hook", "h")], 0.03);
    let text = metrics.render();
    assert!(text.contains("p_runs_total{hook=\"a \\\"b\\\"\\n\"} 2\n"));
    assert!(text.contains("# TYPE p_length gauge\np_length 3.5\n"));
    assert!(text.contains("# TYPE d8_p_other gauge\nd8_p_other 1\n"));
    assert!(text.contains("p_seconds_bucket{hook=\"h\",le=\"0.02\"} 0\n"));
    assert!(text.contains("p_seconds_bucket{hook=\"h\",le=\"0.05\"} 1\n"));
    assert!(text.contains("p_seconds_bucket{hook=\"h\",le=\"+Inf\"} 1\n"));
    assert!(text.contains("p_seconds_count{hook=\"h\"} 1\n"));
}

#[test]
fn a_name_keeps_the_type_of_its_first_use() {
    let metrics = Metrics::new("");
    metrics.add("x", &[], 1.0);
    metrics.set("x", &[], 9.0);
    assert!(metrics.render().contains("x 1\n"));

    let both = [
        operation("x", &[], None, Change::Add(1.0)),
        operation("x", &[], None, Change::Set(9.0)),
    ];
    let ignored = metrics.apply("h", &both);
    assert_eq!(ignored.len(), 1);
    assert_eq!(
        ignored[0].to_string(),
        "metric 'x' is a counter and cannot be a gauge as well; give one of them another name"
    );
    check(&metrics, &["x{hook=\"h\"} 1"]);
    // It went with its group, so the name is free again.
    assert!(metrics.apply("h", &both[1..]).is_empty());
    check(&metrics, &["x{hook=\"h\"} 9"]);
}

#[test]
fn a_run_replaces_what_its_groups_had_and_leaves_the_others() {
    let metrics = Metrics::new("");
    let first = [
        operation("a", &[("l", "1")], Some("g"), Change::Set(1.0)),
        operation("a", &[("l", "2")], Some("g"), Change::Set(2.0)),
        operation("b", &[], Some("other"), Change::Add(1.5)),
        operation("c", &[], None, Change::Add(1.0)),
    ];
    assert!(metrics.apply("h", &first).is_empty());
    let all = [
        "a{l=\"1\",hook=\"h\"} 1",
        "a{l=\"2\",hook=\"h\"} 2",
        "b{hook=\"h\"} 1.5",
        "c{hook=\"h\"} 1",
    ];
    check(&metrics, &all);
    // Nothing written, nothing changed.
    metrics.apply("h", &[]);
    check(&metrics, &all);
    // A group belongs to nobody: another hook replaces it as well.
    metrics.apply(
        "i",
        &[operation("a", &[("l", "3")], Some("g"), Change::Set(3.0))],
    );
    check(
        &metrics,
        &[
            "a{l=\"3\",hook=\"i\"} 3",
            "b{hook=\"h\"} 1.5",
            "c{hook=\"h\"} 1",
        ],
    );
    // In the middle of a run it takes what the run itself had put there.
    let middle = [
        operation("a", &[], Some("g"), Change::Set(4.0)),
        operation("", &[], Some("g"), Change::Expire),
        operation("d", &[], Some("g"), Change::Set(5.0)),
    ];
    metrics.apply("h", &middle);
    check(
        &metrics,
        &["b{hook=\"h\"} 1.5", "c{hook=\"h\"} 1", "d{hook=\"h\"} 5"],
    );
    for group in ["g", "other", "h"] {
        metrics.apply("h", &[operation("", &[], Some(group), Change::Expire)]);
    }
    assert_eq!(metrics.render_hooks(), "");
}

#[test]
fn replacing_its_series_a_run_changes_neither_labels_nor_lines_of_others() {
    let metrics = Metrics::new("");
    let observe = |name: &str, bound| {
        let (value, bounds) = (1.0, vec![bound]);
        operation(name, &[], None, Change::Observe { value, bounds })
    };
    metrics.apply(
        "h",
        &[operation("x", &[("l", "1")], None, Change::Set(1.0))],
    );
    metrics.apply("i", &[operation("x", &[], None, Change::Set(2.0))]);
    metrics.apply("h", &[operation("", &[], Some("h"), Change::Expire)]);
    for _ in 0..2 {
        metrics.apply("i", &[operation("x", &[], None, Change::Set(2.0))]);
        check(&metrics, &["x{l=\"\",hook=\"i\"} 2"]);
    }
    // A name may begin anew as something else, with other buckets, but never beside lines of the same name.
    let counts = [operation("x_count", &[], None, Change::Add(1.0))];
    assert!(metrics.apply("i", &counts).is_empty());
    let both = [observe("x", 1.0), counts[0].clone()];
    assert_eq!(metrics.apply("i", &both).len(), 1);
    assert!(metrics.apply("i", &[observe("x", 5.0)]).is_empty());
    assert!(
        metrics
            .render_hooks()
            .contains("x_bucket{hook=\"i\",le=\"5\"} 1\n")
    );
    assert!(!metrics.render_hooks().contains("le=\"1\""));
}

#[test]
fn without_a_group_the_hook_is_the_group_unless_told_otherwise() {
    let one = [operation("runs", &[], None, Change::Add(1.0))];
    for (keeps, expected) in [(false, "runs{hook=\"h\"} 1"), (true, "runs{hook=\"h\"} 3")] {
        let metrics = Metrics::new("").keeping_ungrouped(keeps);
        for _ in 0..3 {
            metrics.apply("h", &one);
        }
        check(&metrics, &[expected]);
    }
}

#[test]
fn labels_that_come_later_are_empty_on_the_others_and_no_series_is_there_twice() {
    let metrics = Metrics::new("");
    let operations = [
        operation("x", &[], None, Change::Set(1.0)),
        operation(
            "x",
            &[("a", "1"), ("hook", "forged")],
            None,
            Change::Set(2.0),
        ),
        operation("x", &[("a", "")], None, Change::Set(3.0)),
        operation("x", &[("b", "q\"\\\n")], None, Change::Set(4.0)),
    ];
    assert!(metrics.apply("h", &operations).is_empty());
    check(
        &metrics,
        &[
            "x{hook=\"h\",a=\"1\",b=\"\"} 2",
            "x{hook=\"h\",a=\"\",b=\"q\\\"\\\\\\n\"} 4",
            "x{hook=\"h\",a=\"\",b=\"\"} 3",
        ],
    );
}

#[test]
fn names_are_shown_in_the_alphabet_of_prometheus() {
    let metrics = Metrics::new("p_");
    let operations = [
        operation(
            "{PREFIX}x-y.z:1",
            &[("a-b", "1"), ("c:d", "2")],
            None,
            Change::Set(1.0),
        ),
        operation(
            "9{PREFIX}{PREFIX}\u{e9}",
            &[("9", "")],
            None,
            Change::Set(1.0),
        ),
    ];
    assert!(metrics.apply("h", &operations).is_empty());
    check(
        &metrics,
        &[
            "_p__PREFIX__{_=\"\",hook=\"h\"} 1",
            "p_x_y_z:1{a_b=\"1\",c_d=\"2\",hook=\"h\"} 1",
        ],
    );
}

#[test]
fn the_first_buckets_of_a_histogram_stay_and_its_lines_are_its_own() {
    let metrics = Metrics::new("");
    let observe = |name: &str, value, bounds: &[f64]| {
        let bounds = bounds.to_vec();
        operation(name, &[], None, Change::Observe { value, bounds })
    };
    let operations = [
        observe("t", 0.3, &[0.5, 1e21]),
        observe("t", 7e22, &[1.0]),
        operation("t_count", &[], None, Change::Add(1.0)),
        operation("s_sum", &[], None, Change::Add(1.0)),
        observe("s", 1.0, &[1.0]),
    ];
    let ignored = metrics.apply("h", &operations);
    let said: Vec<String> = ignored.iter().map(Ignored::to_string).collect();
    assert_eq!(
        said,
        [
            "metric 't_count' would write the same lines as 't'; give one of them another name",
            "metric 's' would write the same lines as 's_sum'; give one of them another name",
        ]
    );
    check(
        &metrics,
        &[
            "s_sum{hook=\"h\"} 1",
            "t_bucket{hook=\"h\",le=\"0.5\"} 1",
            "t_bucket{hook=\"h\",le=\"1e21\"} 1",
            "t_bucket{hook=\"h\",le=\"+Inf\"} 2",
            "t_sum{hook=\"h\"} 7e22",
            "t_count{hook=\"h\"} 2",
        ],
    );
}

#[test]
fn a_page_of_hooks_has_limits_and_gets_room_again() {
    let metrics = Metrics::new("");
    let many: Vec<Operation> = (0..10_005)
        .map(|number| operation("x", &[("n", &number.to_string())], None, Change::Set(1.0)))
        .collect();
    let ignored = metrics.apply("h", &many);
    assert_eq!(ignored.len(), 5);
    assert!(
        ignored[0].to_string().contains("10000 series"),
        "{}",
        ignored[0]
    );
    let one = [operation("y", &[], Some("g"), Change::Set(1.0))];
    assert_eq!(metrics.apply("h", &one).len(), 1);
    assert!(metrics.apply("h", &many[..7]).is_empty());
    assert!(metrics.apply("h", &one).is_empty());
    assert_eq!(series(&metrics.render_hooks()).len(), 8);

    let wide: Vec<Operation> = (0..70)
        .map(|number| operation("w", &[(&format!("l{number}"), "v")], None, Change::Set(1.0)))
        .collect();
    let ignored = metrics.apply("wide", &wide);
    assert_eq!(ignored.len(), 7, "{ignored:?}");
    assert!(ignored[0].to_string().contains("64 label names"));
}

#[test]
fn numbers_without_end_are_written_as_prometheus_writes_them() {
    let metrics = Metrics::new("");
    let set = |name: &str, value| operation(name, &[], None, Change::Set(value));
    metrics.apply(
        "h",
        &[
            set("a", f64::INFINITY),
            set("b", f64::NEG_INFINITY),
            set("c", 1e-9),
            set("d", 1e20),
            set("e", -0.25),
        ],
    );
    check(
        &metrics,
        &[
            "a{hook=\"h\"} +Inf",
            "b{hook=\"h\"} -Inf",
            "c{hook=\"h\"} 1e-9",
            "d{hook=\"h\"} 100000000000000000000",
            "e{hook=\"h\"} -0.25",
        ],
    );
}

/// No name may be on the page that Prometheus cannot read, whatever it was before and wherever it came from.
#[test]
fn a_histogram_never_shows_the_label_le_twice() {
    let metrics = Metrics::new("");
    let observe = |labels: &[(&str, &str)]| {
        let (value, bounds) = (1.0, vec![1.0]);
        operation("x", labels, None, Change::Observe { value, bounds })
    };
    metrics.apply(
        "h",
        &[operation("x", &[("le", "1")], None, Change::Set(1.0))],
    );
    check(&metrics, &["x{le=\"1\",hook=\"h\"} 1"]);
    // The name is free again, and what it showed before is forgotten.
    assert!(metrics.apply("h", &[observe(&[])]).is_empty());
    check(
        &metrics,
        &[
            "x_bucket{hook=\"h\",le=\"1\"} 1",
            "x_bucket{hook=\"h\",le=\"+Inf\"} 1",
            "x_sum{hook=\"h\"} 1",
            "x_count{hook=\"h\"} 1",
        ],
    );
    let ignored = metrics.apply("i", &[observe(&[("le", "")])]);
    assert_eq!(
        ignored[0].to_string(),
        "metric 'x': label 'le' is that of a histogram's buckets; give it another name"
    );
}

#[test]
fn a_name_that_is_only_an_empty_prefix_is_left_out() {
    let metrics = Metrics::new("");
    let ignored = metrics.apply("h", &[operation("{PREFIX}", &[], None, Change::Set(1.0))]);
    assert_eq!(ignored, [Ignored::NoName]);
    assert!(
        ignored[0]
            .to_string()
            .contains("--prometheus-metrics-prefix")
    );
    assert_eq!(metrics.render_hooks(), "");
}

/// However long names and values are, and however many labels of others a series has to show empty.
#[test]
fn the_page_of_hooks_never_becomes_longer_than_it_may_and_gets_room_again() {
    let metrics = Metrics::new("");
    let names: Vec<String> = (0..60)
        .map(|number| format!("{number:_>200}").replace('0', "a"))
        .collect();
    let wide: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "v")).collect();
    let mut many = vec![operation("x", &wide, None, Change::Set(1.0))];
    many.extend((0..9_000).map(|number| {
        let number = number.to_string();
        operation("x", &[("n", &number)], None, Change::Set(1.0))
    }));
    let ignored = metrics.apply("h", &many);
    let full = Ignored::PageFull { name: "x".into() };
    assert!(!ignored.is_empty() && ignored.iter().all(|reason| *reason == full));
    assert!(full.to_string().contains("16777216 bytes"), "{full}");
    let length = metrics.render_hooks().len();
    assert!((15_000_000..=16_777_216).contains(&length), "{length}");
    // What is there already can go on, and labels that all the others would have to show find no room either.
    let shown = series(&metrics.render_hooks()).len();
    let more = operation("x", &[("late", "")], Some("g"), Change::Set(1.0));
    assert_eq!(metrics.apply("i", &[more]), [full]);
    assert_eq!(series(&metrics.render_hooks()).len(), shown);
    // Once all its series have gone, so have its labels, and everything has room.
    metrics.apply("h", &[operation("", &[], None, Change::Expire)]);
    assert!(metrics.apply("h", &many[1..]).is_empty());
    assert_eq!(series(&metrics.render_hooks()).len(), 9_000);
}

/// The estimate is never below what is written, for every kind of number and label.
#[test]
fn a_page_is_never_longer_than_it_was_taken_for() {
    let mut page = page::Page::of_hooks();
    let values = [
        -f64::MIN_POSITIVE,
        -1.234_567_890_123_456_7e-6,
        -999_999_999_999_999_999_999.0,
        f64::NEG_INFINITY,
    ];
    for (number, value) in values.into_iter().enumerate() {
        let labels = [("a", "\\\"\n"), ("b", &*number.to_string())];
        for (name, kind) in [("g", Kind::Gauge), ("h", Kind::Histogram)] {
            let target = Target {
                name,
                labels: &labels,
                kind,
                bounds: values.to_vec().into(),
                group: None,
            };
            let mut series = page.series(target).unwrap();
            match kind {
                Kind::Histogram => series.observe(value),
                _ => series.set(value),
            }
        }
        assert!(page.render().len() <= page.most_written());
    }
}
