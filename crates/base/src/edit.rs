//! A change of an optional value.

/// What becomes of an optional value. In JSON, an absent field keeps it, and null clears it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(untagged, from = "Option<T>"))]
pub enum Edit<T> {
    #[default]
    #[cfg_attr(feature = "serde", serde(skip))]
    Keep,
    Clear,
    Set(T),
}

impl<T> Edit<T> {
    /// Returns whether nothing changes, so that the field is left out of JSON.
    pub fn is_keep(&self) -> bool {
        matches!(self, Edit::Keep)
    }

    /// Converts a new value; `None` clears.
    pub fn and_then<U>(self, convert: impl FnOnce(T) -> Option<U>) -> Edit<U> {
        match self {
            Edit::Keep => Edit::Keep,
            Edit::Clear => Edit::Clear,
            Edit::Set(value) => convert(value).into(),
        }
    }

    /// Returns what becomes of a value.
    pub fn apply_to(self, before: Option<T>) -> Option<T> {
        match self {
            Edit::Keep => before,
            Edit::Clear => None,
            Edit::Set(value) => Some(value),
        }
    }
}

impl<T> From<Option<T>> for Edit<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Edit::Clear, Edit::Set)
    }
}
