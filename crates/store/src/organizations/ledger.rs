//! The ledger. Transfers are added and never changed. A balance is the sum of an account's entries.

use tarn_model::Money;
use tarn_model::ledger::{Account, Transfer};

use crate::db::params;
use crate::{Result, Tx};

/// Adds a transfer under an unused id.
pub fn record(tx: &mut Tx<'_>, id: &str, actor: &str, transfer: &Transfer) -> Result<()> {
    let sql = "insert into ledger_transactions (id, at_us, actor, description) values ($1, $2, $3, $4)";
    let now = tx.now();
    tx.execute(sql, &params![id, now, actor, transfer.description])?;
    for (line, (account, amount)) in (0i64..).zip(transfer.entries()) {
        let sql = "insert into ledger_entries (transaction_id, line, account, amount_micros) values ($1, $2, $3, $4)";
        tx.execute(sql, &params![id, line, account.as_str(), amount])?;
    }
    Ok(())
}

/// Returns the balance of an account.
pub fn balance(tx: &mut Tx<'_>, account: &Account) -> Result<Money> {
    let sql = "select cast(coalesce(sum(amount_micros), 0) as bigint) from ledger_entries where account = $1";
    tx.single(sql, &params![account.as_str()], |row| row.money())
}
