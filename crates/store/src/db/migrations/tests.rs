//! The rules of the plan, and the list of hashes of landed migrations.

use super::*;

/// The hashes of the migrations, in the form of `sha256sum`. A line is added with each migration and never changed.
const HASHES: &str = include_str!("../../../../../migrations/hashes");

fn recorded(hash: Option<&str>, version: i64, program: Option<&str>) -> Recorded {
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Recorded { version, hash: owned(hash), program: owned(program) }
}

fn all_recorded() -> Vec<Recorded> {
    (1..=SCHEMA_VERSION).map(|version| recorded(known_hash(version).as_deref(), version, None)).collect()
}

fn refusal(recorded: &[Recorded], shape: Shape) -> String {
    match plan(recorded, shape) {
        Err(Error::Schema(why)) => why,
        other => panic!("not refused: {other:?}"),
    }
}

/// A landed migration is never edited: databases exist in which its text ran. The hash of a new one is added to
/// `migrations/hashes` (`sha256sum NNNN_<name>.sql >> hashes`).
#[test]
fn landed_migrations_are_unchanged() {
    let listed: Vec<&str> = HASHES.lines().filter_map(|line| line.split_once("  ")).map(|(hash, _)| hash).collect();
    let known: Vec<String> = (1..=SCHEMA_VERSION).filter_map(known_hash).collect();
    assert_eq!(listed, known, "write a new migration instead of editing one, and add its hash to migrations/hashes");
}

#[test]
fn current_database_needs_nothing() {
    assert_eq!(plan(&all_recorded(), Shape::new()).unwrap(), Vec::<String>::new());
}

#[test]
fn new_database_gets_every_migration_and_its_hash() {
    let statements = plan(&[], Shape::new()).unwrap();
    assert_eq!(statements.len(), ALL.len() * 2);
    assert!(statements[1].contains(&known_hash(1).unwrap()) && statements[1].contains(PROGRAM), "{}", statements[1]);
}

#[test]
fn newer_database_is_refused_and_names_its_program() {
    let mut newer = all_recorded();
    newer.push(recorded(Some("x"), SCHEMA_VERSION + 1, Some("9.8.7")));
    let why = refusal(&newer, Shape::new());
    assert!(why.contains("Tarn 9.8.7 or a newer one") && why.contains("restore a backup"), "{why}");
    newer.pop();
    newer.push(recorded(None, SCHEMA_VERSION + 1, None));
    assert!(refusal(&newer, Shape::new()).contains("install a newer program"));
}

#[test]
fn other_text_is_refused() {
    let mut other = all_recorded();
    other[2] = recorded(Some("x"), 3, Some("0.2.0"));
    let why = refusal(&other, Shape::new());
    assert!(why.contains("migration 3") && why.contains("Tarn 0.2.0") && why.contains("restore a backup"), "{why}");
}
