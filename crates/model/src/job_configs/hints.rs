//! What people are told who use a key that there is not.

/// The keys that there are.
pub(super) const KEYS: [&str; 9] =
    ["commands", "outputs", "ignore", "name", "env", "nodes", "timeout", "retries", "venv"];

/// What to do instead of using this key.
pub(super) fn for_key(key: &str) -> String {
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
        "job" => "there are no sections any more; write its keys at the top of the file".to_owned(),
        "output" | "output_files" => "write outputs = [\"…\"] at the top of the file".to_owned(),
        "command" | "cmd" | "run" | "script" => "write commands = [\"…\"]".to_owned(),
        "environment" | "variables" => "write them below [env]".to_owned(),
        "exclude" | "excludes" | "tpignore" => "write ignore = [\"…\"]".to_owned(),
        _ => match nearest(key) {
            Some(known) => format!("did you mean {known}?"),
            None => format!("there are {}", KEYS.join(", ")),
        },
    }
}

/// The known key that is most like this one, if one is alike.
fn nearest(key: &str) -> Option<&'static str> {
    // Two slips of the hand are forgiven, in a short word only one.
    let forgiven = if key.chars().count() < 5 { 1 } else { 2 };
    if key.len() > 64 {
        return None;
    }
    let lower = key.to_lowercase();
    let best = KEYS.into_iter().map(|known| (distance(&lower, known), known)).min()?;
    (best.0 <= forgiven).then_some(best.1)
}

/// How many characters have to be added, removed or replaced to make one word of the other.
fn distance(one: &str, other: &str) -> usize {
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
    fn slips_are_recognised() {
        for (slip, meant) in [("comands", "commands"), ("Output", "outputs"), ("timout", "timeout"), ("nmae", "name")] {
            assert!(for_key(slip).contains(meant) || distance(slip, meant) > 1, "{slip}: {}", for_key(slip));
        }
        assert_eq!(for_key("comand"), "did you mean commands?");
        assert!(for_key("zzzzzz").starts_with("there are commands"), "{}", for_key("zzzzzz"));
        assert!(for_key("gpu").contains("tp cluster create"));
    }

    #[test]
    fn distances() {
        for (one, other, expected) in
            [("", "", 0), ("abc", "", 3), ("", "abc", 3), ("kitten", "sitting", 3), ("é", "e", 1)]
        {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }
}
