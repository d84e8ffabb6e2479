//! The table of operations in the documentation, against the operations there are.

use std::collections::BTreeSet;

const CODE: &str = include_str!("../../../src/s3/mod.rs");
const TABLE: &str = include_str!("../../../../../docs/object-storage-operations.md");

/// Rows of the table: the operation and its state.
fn rows() -> Vec<(&'static str, &'static str)> {
    let operations = TABLE.split("## What calls may ask for").next().unwrap();
    let cells = operations.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        Some((cells.next()?, cells.next()?))
    });
    cells.filter(|(name, _)| *name != "Operation").collect()
}

fn in_words_of_s3(name: &str) -> String {
    let word = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('_').map(word).collect()
}

#[test]
fn what_is_done_is_what_the_table_says() {
    let done: BTreeSet<String> =
        rows().into_iter().filter(|(_, state)| *state == "done").map(|(name, _)| name.to_owned()).collect();
    let listed = CODE.split("operations! {").last().unwrap().lines();
    let written = listed.filter_map(|line| line.trim().split_once(": ")).map(|(name, _)| in_words_of_s3(name));
    // This one is there to be refused.
    let written: BTreeSet<String> = written.filter(|name| name != "PostObject").collect();
    assert_eq!(done, written);
}

#[test]
fn every_operation_is_listed_once_with_a_state() {
    let names: BTreeSet<&str> = rows().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), rows().len());
    assert!(names.len() > 100, "{}", names.len());
    for (name, state) in rows() {
        assert!(["done", "later", "never"].contains(&state), "{name}: {state}");
    }
}
