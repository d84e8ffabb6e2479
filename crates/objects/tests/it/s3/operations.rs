//! Compares the table of operations in the documentation with the implemented operations.

use std::collections::BTreeSet;

const CODE: &str = include_str!("../../../src/s3/mod.rs");
const TABLE: &str = include_str!("../../../../../docs/object-storage-operations.md");

/// Returns the rows of the table: the operation and its state.
fn rows() -> Vec<(&'static str, &'static str)> {
    let operations = TABLE.split("## What calls may ask for").next().unwrap();
    let cells = operations.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        Some((cells.next()?, cells.next()?))
    });
    cells.filter(|(name, _)| *name != "Operation").collect()
}

fn s3_operation_name(name: &str) -> String {
    let word = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('_').map(word).collect()
}

/// The table in the documentation lists exactly the implemented operations.
#[test]
fn documented_operations_are_implemented() {
    let done: BTreeSet<String> =
        rows().into_iter().filter(|(_, state)| *state == "done").map(|(name, _)| name.to_owned()).collect();
    let listed = CODE.split("operations! {").last().unwrap().lines();
    let written = listed.filter_map(|line| line.trim().split_once(": ")).map(|(name, _)| s3_operation_name(name));
    // This operation exists only to be refused.
    let written: BTreeSet<String> = written.filter(|name| name != "PostObject").collect();
    assert_eq!(done, written);
}

/// Every operation is listed once, with a state.
#[test]
fn operations_are_listed_once() {
    let names: BTreeSet<&str> = rows().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), rows().len());
    assert!(names.len() > 100, "{}", names.len());
    for (name, state) in rows() {
        assert!(["done", "later", "never"].contains(&state), "{name}: {state}");
    }
}
