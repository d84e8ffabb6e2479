//! Values of statement parameters and of row columns: text, integers, bytes and null.

use tarn_model::{Money, Time};

use crate::{Error, Result};

/// A parameter of a statement, borrowed from the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Param<'a> {
    Text(&'a str),
    Integer(i64),
    Bytes(&'a [u8]),
    Null,
}

impl<'a> From<&'a str> for Param<'a> {
    fn from(text: &'a str) -> Self {
        Param::Text(text)
    }
}

impl<'a> From<&'a String> for Param<'a> {
    fn from(text: &'a String) -> Self {
        Param::Text(text)
    }
}

impl From<i64> for Param<'_> {
    fn from(number: i64) -> Self {
        Param::Integer(number)
    }
}

impl From<u32> for Param<'_> {
    fn from(number: u32) -> Self {
        Param::Integer(number.into())
    }
}

/// Converts with saturation. The domain rules allow no number near the limit of the column's range.
impl From<u64> for Param<'_> {
    fn from(number: u64) -> Self {
        Param::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Param<'_> {
    fn from(flag: bool) -> Self {
        Param::Integer(flag.into())
    }
}

impl From<Time> for Param<'_> {
    fn from(time: Time) -> Self {
        Param::Integer(time.as_micros())
    }
}

impl From<Money> for Param<'_> {
    fn from(money: Money) -> Self {
        Param::Integer(money.as_micros())
    }
}

impl<'a> From<&'a [u8]> for Param<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Param::Bytes(bytes)
    }
}

impl<'a, T: Into<Param<'a>>> From<Option<T>> for Param<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Param::Null, Into::into)
    }
}

/// A value of a column.
#[derive(Debug, Default)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Bytes(Vec<u8>),
    #[default]
    Null,
}

/// A row that is read column by column from the left.
#[derive(Debug)]
pub struct Row {
    values: std::vec::IntoIter<Value>,
}

impl Row {
    pub(crate) fn new(values: Vec<Value>) -> Self {
        Row { values: values.into_iter() }
    }

    /// Reads the next column as text or null.
    pub(crate) fn maybe_text(&mut self) -> Result<Option<String>> {
        match self.values.next() {
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(Value::Null) => Ok(None),
            other => Err(unexpected_value("text", &other)),
        }
    }

    /// Reads the next column as text.
    pub(crate) fn text(&mut self) -> Result<String> {
        self.maybe_text()?.ok_or_else(|| unexpected_value("text", &None))
    }

    /// Reads the next column as a number or null.
    pub(crate) fn maybe_integer(&mut self) -> Result<Option<i64>> {
        match self.values.next() {
            Some(Value::Integer(number)) => Ok(Some(number)),
            Some(Value::Null) => Ok(None),
            other => Err(unexpected_value("a number", &other)),
        }
    }

    /// Reads the next column as a number.
    pub(crate) fn integer(&mut self) -> Result<i64> {
        self.maybe_integer()?.ok_or_else(|| unexpected_value("a number", &None))
    }

    /// Reads the next column as a number that is not negative.
    pub(crate) fn count<N: TryFrom<i64>>(&mut self) -> Result<N> {
        let number = self.integer()?;
        N::try_from(number).map_err(|_| Error::Corrupt(format!("{number} is out of range")))
    }

    /// Reads the next column as a flag, 0 or 1.
    pub(crate) fn flag(&mut self) -> Result<bool> {
        Ok(self.integer()? != 0)
    }

    /// Reads the next column as a time.
    pub(crate) fn time(&mut self) -> Result<Time> {
        Ok(Time::from_micros(self.integer()?))
    }

    /// Reads the next column as an amount of money.
    pub(crate) fn money(&mut self) -> Result<Money> {
        Ok(Money::from_micros(self.integer()?))
    }

    /// Reads the next column as bytes.
    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>> {
        self.maybe_bytes()?.ok_or_else(|| unexpected_value("bytes", &None))
    }

    /// Reads the next column as bytes or null.
    pub(crate) fn maybe_bytes(&mut self) -> Result<Option<Vec<u8>>> {
        match self.values.next() {
            Some(Value::Bytes(bytes)) => Ok(Some(bytes)),
            Some(Value::Null) => Ok(None),
            other => Err(unexpected_value("bytes", &other)),
        }
    }

    /// Reads the next column as an id.
    pub(crate) fn id<I: TryFrom<String>>(&mut self) -> Result<I> {
        let text = self.text()?;
        I::try_from(text).map_err(|_| Error::Corrupt("an id is malformed".to_owned()))
    }

    /// Reads the next column as an id or null.
    pub(crate) fn maybe_id<I: TryFrom<String>>(&mut self) -> Result<Option<I>> {
        let Some(text) = self.maybe_text()? else {
            return Ok(None);
        };
        I::try_from(text).map(Some).map_err(|_| Error::Corrupt("an id is malformed".to_owned()))
    }
}

fn unexpected_value(wanted: &str, found: &Option<Value>) -> Error {
    let found = match found {
        Some(Value::Text(_)) => "text",
        Some(Value::Integer(_)) => "a number",
        Some(Value::Bytes(_)) => "bytes",
        Some(Value::Null) | None => "nothing",
    };
    Error::Corrupt(format!("a column should hold {wanted} and holds {found}"))
}
