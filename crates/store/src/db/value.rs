//! Values of statement parameters and of row columns: text, integers, bytes and null.

use tarn_model::ids::*;
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

/// A value that can be a parameter.
pub(crate) trait ToParam {
    fn to_param(&self) -> Param<'_>;
}

macro_rules! to_param {
    ($($($kind:ty),+: $value:ident => $param:expr;)+) => {
        $($(impl ToParam for $kind {
            fn to_param(&self) -> Param<'_> {
                let $value = self;
                $param
            }
        })+)+
    };
}

to_param! {
    str, String: text => Param::Text(text);
    ApiKeyId, BucketId, ClusterId, ContentId, FileId, InstanceId, JobId, OrgId, RequestId: id => Param::Text(id.as_str());
    SshKeyId, UserId, VersionId, VolumeId: id => Param::Text(id.as_str());
    [u8], Vec<u8>, [u8; 32]: bytes => Param::Bytes(bytes);
    i64: number => Param::Integer(*number);
    u32: number => Param::Integer((*number).into());
    // Saturates: the domain rules allow no number near the limit of the column's range.
    u64: number => Param::Integer(i64::try_from(*number).unwrap_or(i64::MAX));
    bool: flag => Param::Integer((*flag).into());
    Time: time => Param::Integer(time.as_micros());
    Money: money => Param::Integer(money.as_micros());
}

impl<T: ToParam + ?Sized> ToParam for &T {
    fn to_param(&self) -> Param<'_> {
        (**self).to_param()
    }
}

impl<T: ToParam> ToParam for Option<T> {
    fn to_param(&self) -> Param<'_> {
        self.as_ref().map_or(Param::Null, T::to_param)
    }
}

/// The parameters of a statement: values, or fields of one noun in the order of the columns and then other values.
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        [$($crate::db::ToParam::to_param(&$value)),*]
    };
    ($noun:ident: $($($part:ident $(($($call:tt)*))?).+),+ $(; $($value:expr),+)?) => {
        $crate::db::params![$($noun $(.$part $(($($call)*))?)+),+ $(, $($value),+)?]
    };
}
pub(crate) use params;

/// A value of a column.
#[derive(Debug, Default)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Bytes(Vec<u8>),
    #[default]
    Null,
}

impl Value {
    /// The value as a parameter of a statement.
    pub(crate) fn as_param(&self) -> Param<'_> {
        match self {
            Value::Text(text) => Param::Text(text),
            Value::Integer(number) => Param::Integer(*number),
            Value::Bytes(bytes) => Param::Bytes(bytes),
            Value::Null => Param::Null,
        }
    }
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

    /// Reads the next column as a time or null.
    pub(crate) fn maybe_time(&mut self) -> Result<Option<Time>> {
        Ok(self.maybe_integer()?.map(Time::from_micros))
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
        self.maybe_id()?.ok_or_else(|| unexpected_value("text", &None))
    }

    /// Reads the next column as an id or null.
    pub(crate) fn maybe_id<I: TryFrom<String>>(&mut self) -> Result<Option<I>> {
        let id = self.maybe_text()?.map(I::try_from).transpose();
        id.map_err(|_| Error::Corrupt("an id is malformed".to_owned()))
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
