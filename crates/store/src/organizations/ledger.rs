//! The ledger. Transfers are added and never changed. A balance is the sum of an account's entries;
//! it is kept, because an account has ever more of them.

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
        add_to_balance(tx, account.as_str(), amount.as_micros())?;
    }
    Ok(())
}

/// Returns the balance of an account.
pub fn balance(tx: &mut Tx<'_>, account: &Account) -> Result<Money> {
    let sql = "select amount_micros from ledger_balances where account = $1";
    Ok(tx.row(sql, &params![account.as_str()], |row| row.money())?.unwrap_or(Money::ZERO))
}

/// Adds to the balance of an account of the ledger.
pub(crate) fn add_to_balance(tx: &mut Tx<'_>, account: &str, micros: i64) -> Result<()> {
    let sql = "insert into ledger_balances (account, amount_micros) values ($1, $2) on conflict (account) do update \
               set amount_micros = ledger_balances.amount_micros + excluded.amount_micros";
    tx.run(sql, &params![account, micros])
}
