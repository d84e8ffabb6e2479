//! Hints for users who write an unknown key.

/// The known keys.
pub(super) const KEYS: [&str; 9] =
    ["commands", "outputs", "ignore", "name", "env", "nodes", "timeout", "retries", "venv"];

/// Returns what to write instead of this key.
pub(super) fn hint_for_key(key: &str) -> String {
    match key {
        "instance_type" | "instance" | "gpu" | "gpus" | "num_gpus" | "vcpus" | "cpus" | "memory" | "optimization_priority" => {
            "a job runs on a cluster that exists: create one with `tp cluster create`, name it in `tp job push FILE CLUSTER`, \
             and remove this key"
                .to_owned()
        }
        "cluster" | "cluster_id" => {
            "the cluster is an argument of `tp job push FILE CLUSTER`; remove this key".to_owned()
        }
        "num_nodes" => "write nodes = \"all\" to run on every node of the cluster".to_owned(),
        "teardown" | "teardown_cluster" => {
            "tearing the cluster down is an option, `tp job push --teardown`; remove this key".to_owned()
        }
        "job" => "sections are no longer supported; write its keys at the top of the file".to_owned(),
        "output" | "output_files" => "write outputs = [\"…\"] at the top of the file".to_owned(),
        "command" | "cmd" | "run" | "script" => "write commands = [\"…\"]".to_owned(),
        "environment" | "variables" => "write them below [env]".to_owned(),
        "exclude" | "excludes" | "tpignore" => "write ignore = [\"…\"]".to_owned(),
        _ => match nearest_key(key) {
            Some(known) => format!("did you mean {known}?"),
            None => format!("the keys are {}", KEYS.join(", ")),
        },
    }
}

/// Returns the known key that is most similar to this one, if one is similar.
fn nearest_key(key: &str) -> Option<&'static str> {
    // Two typing errors are tolerated, in a short key only one.
    let tolerated = if key.chars().count() < 5 { 1 } else { 2 };
    if key.len() > 64 {
        return None;
    }
    let lower = key.to_lowercase();
    let best = KEYS.into_iter().map(|known| (edit_distance(&lower, known), known)).min()?;
    (best.0 <= tolerated).then_some(best.1)
}

/// Returns the edit distance: how many characters must be added, removed or replaced to turn one text into the other.
fn edit_distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, known) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *known);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_get_hints() {
        for (slip, meant) in [("comands", "commands"), ("Output", "outputs"), ("timout", "timeout"), ("nmae", "name")] {
            assert!(
                hint_for_key(slip).contains(meant) || edit_distance(slip, meant) > 1,
                "{slip}: {}",
                hint_for_key(slip)
            );
        }
        assert_eq!(hint_for_key("comand"), "did you mean commands?");
        assert!(hint_for_key("zzzzzz").starts_with("the keys are commands"), "{}", hint_for_key("zzzzzz"));
        assert!(hint_for_key("gpu").contains("tp cluster create"));
    }

    #[test]
    fn edit_distances_are_correct() {
        for (one, other, expected) in
            [("", "", 0), ("abc", "", 3), ("", "abc", 3), ("kitten", "sitting", 3), ("é", "e", 1)]
        {
            assert_eq!(edit_distance(one, other), expected, "{one} {other}");
        }
    }
}
