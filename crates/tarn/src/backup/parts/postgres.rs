//! PostgreSQL's own programs, which write and read dumps: found, compared with the server, and run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tarn_store::{Store, backup};

use crate::failure::{Failure, Result};

/// Where Debian has the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// Finds a program of PostgreSQL that is at least as new as the server.
pub(in crate::backup) async fn find_program(name: &str, store: &Store) -> Result<PathBuf> {
    let server = store.read(backup::server_version).await;
    let server = server.map_err(|e: tarn_store::Error| Failure::with_cause("cannot ask the database server", e))?;
    let mut newest = None;
    for program in candidates(name) {
        match version_of(&program) {
            Some(version) if version >= server => return Ok(program),
            version => newest = newest.max(version),
        }
    }
    Err(Failure(match newest {
        Some(version) => format!(
            "{name} has version {version} and the server {server}: install PostgreSQL's client programs of version \
             {server} or later (Debian: postgresql-client-{server})"
        ),
        None => format!("{name} is missing: install PostgreSQL's client programs (Debian: postgresql-client)"),
    }))
}

/// The program in the search path, then those of Debian's packages.
fn candidates(name: &str) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from(name)];
    for entry in std::fs::read_dir(VERSIONS).into_iter().flatten().flatten() {
        found.push(entry.path().join("bin").join(name));
    }
    found
}

fn version_of(program: &Path) -> Option<u32> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    parse_version(&String::from_utf8_lossy(&output.stdout))
}

/// Parses the major version in `pg_dump (PostgreSQL) 17.5 (Debian 17.5-1)`.
fn parse_version(text: &str) -> Option<u32> {
    let (_, version) = text.split_once("(PostgreSQL) ")?;
    version.split(|char: char| !char.is_ascii_digit()).next()?.parse().ok()
}

/// Writes a dump of the state that a snapshot names.
pub(in crate::backup) fn dump(program: &Path, url: &str, snapshot: &str, to: &Path) -> Result<()> {
    let mut command = Command::new(program);
    command.args(["--format=custom", "--no-owner", "--no-privileges", "--no-password"]);
    command.arg(format!("--snapshot={snapshot}")).arg("--file").arg(to);
    run(command, url, "pg_dump")
}

/// Restores a dump into an empty database, in one transaction.
pub(in crate::backup) fn restore(program: &Path, url: &str, from: &Path) -> Result<()> {
    let environment = environment(url)?;
    let database = environment.iter().find(|(name, _)| *name == "PGDATABASE").map(|(_, value)| value.clone());
    let mut command = Command::new(program);
    command.args(["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges", "--no-password"]);
    command.arg("--dbname").arg(database.unwrap_or_default()).arg(from);
    run(command, url, "pg_restore")
}

fn run(mut command: Command, url: &str, name: &str) -> Result<()> {
    // The password is not an argument, which other users of the host could read.
    command.envs(environment(url)?).stdin(Stdio::null());
    let output = command.output().map_err(|e| Failure::with_cause(format!("cannot run {name}"), e))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure(format!("{name} failed: {}", tarn_base::plain(said.trim(), 2000))))
}

fn environment(url: &str) -> Result<Vec<(&'static str, String)>> {
    backup::connection_environment(url).map_err(|e| Failure(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_parsed() {
        assert_eq!(parse_version("pg_dump (PostgreSQL) 17.5 (Debian 17.5-1.pgdg120+1)\n"), Some(17));
        assert_eq!(parse_version("pg_dump (PostgreSQL) 18beta1\n"), Some(18));
        assert_eq!(parse_version("something else"), None);
    }

    /// The address becomes variables, so that the password is not among the arguments of a process.
    #[test]
    fn address_becomes_variables() {
        let found = environment("postgres://ann:se%20cret@db.example:5433/tarn").unwrap();
        let expected = [
            ("PGHOST", "db.example"),
            ("PGPORT", "5433"),
            ("PGUSER", "ann"),
            ("PGPASSWORD", "se cret"),
            ("PGDATABASE", "tarn"),
        ];
        assert_eq!(found, expected.map(|(name, value)| (name, value.to_owned())));
        assert!(environment("postgres://[").is_err_and(|e| !e.0.contains('[')));
        let url = "postgres://db/tarn?hostaddr=192.0.2.7&options=-c%20search_path%3Dtarn&sslmode=disable&connect_timeout=5\
                   &target_session_attrs=read-write";
        let found = environment(url).unwrap();
        let expected = [
            ("PGHOST", "db"),
            ("PGHOSTADDR", "192.0.2.7"),
            ("PGPORT", "5432"),
            ("PGDATABASE", "tarn"),
            ("PGOPTIONS", "-c search_path=tarn"),
            ("PGCONNECT_TIMEOUT", "5"),
            ("PGSSLMODE", "disable"),
            ("PGTARGETSESSIONATTRS", "read-write"),
        ];
        assert_eq!(found, expected.map(|(name, value)| (name, value.to_owned())));
    }

    /// What these programs cannot be told is refused by name: they would connect in another way than the engine.
    #[test]
    fn unknown_options_are_refused() {
        for option in ["sslmode=require", "channel_binding=require", "keepalives_idle=5", "tcp_user_timeout=9"] {
            let said = environment(&format!("postgres://ann:secret@db/tarn?{option}")).unwrap_err().0;
            let name = option.split_once('=').unwrap().0;
            assert!(said.contains(name) && !said.contains("secret"), "{said}");
        }
    }
}
