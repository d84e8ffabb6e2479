//! What a backup and a restore need of the database: a consistent copy of it, the files that its rows name, and the
//! rows that are about the host it came from.

use std::net::IpAddr;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use tarn_model::ids::FileId;
use tokio_postgres::config::{Host, LoadBalanceHosts, SslMode, TargetSessionAttrs};

use crate::db::{params, sqlite_error};
use crate::{Error, Result, Tx};

/// A file of object storage that a row names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    pub file: FileId,
    pub bytes: u64,
    /// The MD5 of its content in hexadecimal; empty if it is not known.
    pub md5: String,
}

/// Copies a SQLite database that other processes may write to, into a new file. The copy is one consistent state, and
/// its content is compact and ordered. It is not synced.
pub fn copy_sqlite(from: &Path, to: &Path) -> Result<()> {
    let connection = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(sqlite_error)?;
    connection.busy_timeout(std::time::Duration::from_secs(30)).map_err(sqlite_error)?;
    // One statement reads in one transaction. Copying in steps would start again after each write.
    connection.execute("vacuum into $1", [to.to_string_lossy()]).map_err(sqlite_error)?;
    Ok(())
}

/// Lets a transaction take as long as it needs. Those of engines have a limit, which a large database, or `pg_dump`,
/// exceeds.
pub fn lift_limit(tx: &mut Tx<'_>) -> Result<()> {
    tx.lift_limit()
}

/// Keeps the state that this transaction sees available for `pg_dump --snapshot`, until the transaction ends.
pub fn export_snapshot(tx: &mut Tx<'_>) -> Result<String> {
    tx.single("select pg_export_snapshot()", &[], |row| row.text())
}

/// Returns the major version of the PostgreSQL server.
pub fn server_version(tx: &mut Tx<'_>) -> Result<u32> {
    let sql = "select cast(current_setting('server_version_num') as bigint) / 10000";
    tx.single(sql, &[], |row| row.count())
}

/// Returns the variables with which the programs of PostgreSQL connect to this address as an engine does. In the
/// arguments of a program, other users of the host would see the password. An error names what has no variable.
pub fn connection_environment(url: &str) -> Result<Vec<(&'static str, String)>> {
    let config: tokio_postgres::Config =
        url.parse().map_err(|_| Error::Unavailable("the database address cannot be understood".to_owned()))?;
    refuse_unmapped(&config)?;
    let hosts = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.to_string_lossy().into_owned(),
    });
    let (hosts, ports) = (join(hosts), join(config.get_ports().iter().map(u16::to_string)));
    let password = config.get_password().map(|password| String::from_utf8_lossy(password).into_owned());
    let all = [
        ("PGHOST", Some(hosts)),
        ("PGHOSTADDR", Some(join(config.get_hostaddrs().iter().map(IpAddr::to_string)))),
        ("PGPORT", Some(ports)),
        ("PGUSER", config.get_user().map(str::to_owned)),
        ("PGPASSWORD", password),
        ("PGDATABASE", config.get_dbname().or(config.get_user()).map(str::to_owned)),
        ("PGOPTIONS", config.get_options().map(str::to_owned)),
        ("PGAPPNAME", config.get_application_name().map(str::to_owned)),
        ("PGCONNECT_TIMEOUT", config.get_connect_timeout().map(|limit| limit.as_secs().to_string())),
        ("PGSSLMODE", (config.get_ssl_mode() == SslMode::Disable).then(|| "disable".to_owned())),
        ("PGTARGETSESSIONATTRS", session_attrs(&config).map(str::to_owned)),
        (
            "PGLOADBALANCEHOSTS",
            (config.get_load_balance_hosts() == LoadBalanceHosts::Random).then(|| "random".to_owned()),
        ),
    ];
    Ok(all.into_iter().filter_map(|(name, value)| Some((name, value.filter(|value| !value.is_empty())?))).collect())
}

fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(",")
}

fn session_attrs(config: &tokio_postgres::Config) -> Option<&'static str> {
    match config.get_target_session_attrs() {
        TargetSessionAttrs::ReadWrite => Some("read-write"),
        TargetSessionAttrs::ReadOnly => Some("read-only"),
        _ => None,
    }
}

/// Refuses options of an address with which those programs would connect in another way than the engine.
fn refuse_unmapped(config: &tokio_postgres::Config) -> Result<()> {
    let plain = tokio_postgres::Config::new();
    let options = [
        // The engine has no TLS, so it does not connect with these either.
        ("sslmode", config.get_ssl_mode() == SslMode::Require),
        ("sslnegotiation", config.get_ssl_negotiation() != plain.get_ssl_negotiation()),
        ("channel_binding", config.get_channel_binding() != plain.get_channel_binding()),
        ("tcp_user_timeout", config.get_tcp_user_timeout() != plain.get_tcp_user_timeout()),
        ("keepalives", config.get_keepalives() != plain.get_keepalives()),
        ("keepalives_idle", config.get_keepalives_idle() != plain.get_keepalives_idle()),
        ("keepalives_interval", config.get_keepalives_interval() != plain.get_keepalives_interval()),
        ("keepalives_retries", config.get_keepalives_retries() != plain.get_keepalives_retries()),
    ];
    let unmapped: Vec<&str> = options.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect();
    if unmapped.is_empty() {
        return Ok(());
    }
    Err(Error::Unavailable(format!(
        "pg_dump and pg_restore cannot be given {} of the database address: leave it out of the address for backups and \
         restores",
        unmapped.join(", ")
    )))
}

/// Returns the files that rows name, ordered by id, after `after`.
pub fn named_files(tx: &mut Tx<'_>, after: &str, limit: u32) -> Result<Vec<NamedFile>> {
    let sql = "select file_id, size, etag from parts where file_id > $1 order by file_id limit $2";
    tx.rows(sql, &params![after, limit], |row| Ok(NamedFile { file: row.id()?, bytes: row.count()?, md5: row.text()? }))
}

/// Returns whether a bucket has this object with this ETag.
pub fn has_object(tx: &mut Tx<'_>, bucket: &str, key: &str, etag: &str) -> Result<bool> {
    let sql = "select 1 from objects join buckets on buckets.id = objects.bucket_id \
               where buckets.name = $1 and objects.key = $2 and objects.etag = $3 limit 1";
    tx.has_row(sql, &params![bucket, key, etag])
}

/// Returns whether the database has no table yet. Only for PostgreSQL, whose databases exist before Tarn uses them.
pub fn is_empty(tx: &mut Tx<'_>) -> Result<bool> {
    Ok(!tx.has_row("select 1 from pg_class where relnamespace = cast(current_schema() as regnamespace) limit 1", &[])?)
}

/// Removes all tables and sequences of the schema. Only for PostgreSQL, after a trial.
pub fn remove_everything(tx: &mut Tx<'_>) -> Result<()> {
    let sql = "do $do$ declare found record; begin \
               for found in select case relkind when 'S' then 'sequence' else 'table' end as kind, cast(oid as regclass) as name \
                   from pg_class where relnamespace = cast(current_schema() as regnamespace) and relkind in ('r', 'S') \
               loop execute format('drop %s if exists %s cascade', found.kind, found.name); end loop; end $do$";
    tx.lift_limit()?;
    tx.run(sql, &[])
}

/// Removes the rows about the host: its GPUs and its drain. The next host is not the one that they describe.
pub fn forget_host(tx: &mut Tx<'_>) -> Result<()> {
    tx.run("delete from gpus", &[])?;
    tx.run("delete from host_drains", &[])
}

/// Returns how many transactions of the ledger do not sum to zero.
pub fn unbalanced_transfers(tx: &mut Tx<'_>) -> Result<u64> {
    let sql = "select count(*) from (select transaction_id from ledger_entries group by transaction_id \
               having sum(amount_micros) <> 0) wrong";
    tx.single(sql, &[], |row| row.count())
}

/// Returns how many instances hold capacity of a host.
pub fn holding_instances(tx: &mut Tx<'_>) -> Result<u64> {
    tx.single("select count(*) from instances where holds_capacity = 1", &[], |row| row.count())
}
