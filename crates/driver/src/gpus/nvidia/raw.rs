//! Two queries that the NVML wrapper lacks: the slices of a GPU, and remapped memory.
#![allow(unsafe_code, reason = "these functions of NVML have no safe wrapper")]

use std::ffi::{OsStr, c_uint};
use std::ptr;

use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT, nvmlReturn_enum_NVML_ERROR_NOT_FOUND,
    nvmlReturn_enum_NVML_SUCCESS, nvmlReturn_t,
};

/// The name of the library where only the driver is installed.
pub(super) const LIBRARY: &str = "libnvidia-ml.so.1";

/// The maximum number of slices of a GPU.
const MAX_SLICES: u32 = 64;

/// The results for an index without a slice, depending on the version.
const EMPTY: [nvmlReturn_t; 2] = [nvmlReturn_enum_NVML_ERROR_NOT_FOUND, nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT];

/// The functions of the library itself.
pub(super) struct Raw {
    library: NvmlLib,
}

/// The state of remapped memory.
#[derive(Default)]
pub(super) struct Remapped {
    pub(super) pending: bool,
    pub(super) failed: bool,
}

impl Raw {
    /// Loads the library once more, which returns the same one: it is reference-counted.
    pub(super) fn open() -> Option<Self> {
        // SAFETY: the wrapper has already loaded this library, so its constructors have run, and it stays loaded.
        unsafe { NvmlLib::new(OsStr::new(LIBRARY)) }.ok().map(|library| Raw { library })
    }

    /// Returns whether memory is waiting to be remapped or could not be; `None` for GPUs without that function.
    pub(super) fn remapped(&self, device: &Device<'_>) -> Option<Remapped> {
        let ask = self.library.nvmlDeviceGetRemappedRows.as_ref().ok()?;
        let (mut corrected, mut uncorrected, mut pending, mut failed): (c_uint, c_uint, c_uint, c_uint) = (0, 0, 0, 0);
        // SAFETY: the handle is of a borrowed device, and all four numbers outlive the call.
        let done = unsafe { ask(device.handle(), &mut corrected, &mut uncorrected, &mut pending, &mut failed) };
        (done == nvmlReturn_enum_NVML_SUCCESS).then_some(Remapped { pending: pending != 0, failed: failed != 0 })
    }

    /// Returns the slices of a GPU as devices, each with its index, which may have gaps. `None` if they cannot be
    /// determined.
    pub(super) fn slices<'nvml>(&self, device: &Device<'_>, nvml: &'nvml Nvml) -> Option<Vec<(u32, Device<'nvml>)>> {
        let count = self.library.nvmlDeviceGetMaxMigDeviceCount.as_ref().ok()?;
        let at = self.library.nvmlDeviceGetMigDeviceHandleByIndex.as_ref().ok()?;
        let mut most: c_uint = 0;
        // SAFETY: the handle is of a borrowed device, and the number outlives the call.
        if unsafe { count(device.handle(), &mut most) } != nvmlReturn_enum_NVML_SUCCESS {
            return None;
        }
        let slice = |index| {
            let mut handle = ptr::null_mut();
            // SAFETY: as above; a call that does not succeed has not set the handle, which is then not used.
            match unsafe { at(device.handle(), index, &mut handle) } {
                // SAFETY: NVML has just returned this handle, and `nvml` is borrowed for as long as the device exists.
                done if done == nvmlReturn_enum_NVML_SUCCESS => {
                    Some(Some((index, unsafe { Device::new(handle, nvml) })))
                }
                done if EMPTY.contains(&done) => Some(None),
                _ => None,
            }
        };
        let places: Option<Vec<_>> = (0..most.min(MAX_SLICES)).map(slice).collect();
        Some(places?.into_iter().flatten().collect())
    }
}
