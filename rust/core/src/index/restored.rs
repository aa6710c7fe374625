//! Rebuilding an index from what a file holds of it, with checks.

use super::column::{Run, former};
use super::ids::Ids;
use super::side::Side;
use super::{Column, Index, Keys, Order, Partition, Settings, checked};
use crate::codes::packed::{BLOCK, Layout, PackedCodes};
use crate::codes::store::Store;
use crate::error::{Result, invalid};
use crate::model::Model;
use crate::scan::{Edges, Levels};

/// What files hold of an index besides its model and settings.
pub(crate) struct Parts {
    pub(crate) packed: Store,
    /// Levels of scales; or the levels that earlier versions used instead of intervals.
    pub(crate) levels: Option<Box<Levels>>,
    /// Where runs of intervals begin, and their edges.
    pub(crate) runs: Vec<(usize, Box<Edges>)>,
    pub(crate) numbers: Vec<f32>,
    pub(crate) is_centered: bool,
    pub(crate) ids: Option<Vec<i64>>,
    /// The next id; missing in older files.
    pub(crate) next_id: Option<u64>,
    pub(crate) order: Option<Order>,
    /// The partition, for a model with centroids.
    pub(crate) partition: Option<Partition>,
    pub(crate) keys: Option<Keys>,
}

impl Index {
    pub(crate) fn from_parts(model: Model, settings: Settings, parts: Parts) -> Result<Self> {
        let Parts { packed, levels, runs, numbers, is_centered, ids, next_id, order, partition, keys } =
            parts;
        let mut index = Self::framed(model, settings, is_centered)?;
        let n = packed.len();
        if packed.n_columns() != index.packed.n_columns() {
            let (have, want) = (packed.n_columns(), index.packed.n_columns());
            return Err(invalid!("codes have {have} columns, want {want}"));
        }
        let (layout, found) = (index.layout(), packed.view().layout());
        if found != layout && found != Layout::bytes(layout.n_columns()) {
            let (have, want) = (found.n_nibbles(), layout.n_nibbles());
            return Err(invalid!("{have} columns of codes are nibbles: want {want}, or none"));
        }
        if let Some(levels) = &levels {
            checked::levels(index.side, levels)?;
        }
        runs.iter().try_for_each(|(_, edges)| checked::edges(index.side, edges))?;
        let column = match (index.side, levels) {
            // Earlier versions kept the levels of an index without vectors, or not.
            _ if n == 0 => None,
            (Side::None, None) if runs.is_empty() => None,
            (Side::Scale, Some(levels)) if runs.is_empty() => Some(Column::Levels(levels)),
            (Side::InverseNorm, Some(levels)) if runs.is_empty() => {
                Some(Column::Runs(vec![Run::stored(0, former::nearest(&levels))]))
            }
            (Side::SquaredNorm { .. } | Side::ResidualNorm, Some(levels)) if runs.is_empty() => {
                Some(Column::Runs(vec![Run::stored(0, former::above(&levels))]))
            }
            (Side::InverseNorm | Side::SquaredNorm { .. } | Side::ResidualNorm, None) if !runs.is_empty() => {
                let runs = runs.into_iter().map(|(first, edges)| Run::stored(first, edges));
                // With lists, a single run holds all vectors there are.
                let runs = runs.map(|run| if partition.is_some() { run.for_all(n) } else { run });
                Some(Column::Runs(runs.collect()))
            }
            _ => return Err(invalid!("levels or norms do not fit the settings")),
        };
        let of_all = partition.as_ref().map_or(n, |partition| partition.positions().len());
        if partition.is_some() != index.partition.is_some() || of_all != n {
            return Err(invalid!("lists do not fit the model and its {n} vectors"));
        }
        let runs = column.as_ref().map_or(&[][..], Column::as_runs);
        if partition.is_some() && runs.len() > 1 {
            return Err(invalid!("an index with lists has {} runs of intervals: want 1", runs.len()));
        }
        if runs.first().is_some_and(|run| run.first != 0)
            || !runs.is_sorted_by(|a, b| a.first < b.first)
            || !runs.iter().all(|run| run.first % BLOCK == 0 && run.first < n && run.edges.is_sorted())
        {
            return Err(invalid!("the intervals of norms do not fit the codes"));
        }
        if numbers.len() != if index.side.keeps_numbers() { n } else { 0 } {
            return Err(invalid!("levels or norms do not fit the settings"));
        }
        checked::numbers(index.side, &numbers)?;
        // Mapped codes are not checked here: any byte is safe to look up, and a code beyond K counts as codeword 0.
        if let Store::Owned(codes) = &packed {
            index.check_packed(codes.view())?;
            if !numbers.is_empty() {
                checked::intervals(codes.view(), runs, &numbers)?;
            }
        }
        index.ids = Ids::restored(n, ids, next_id, order, keys)?;
        index.largest = numbers.iter().copied().fold(0.0, f32::max);
        // Older files use one byte per code; mapped ones are scanned in that layout until they change.
        let packed = match packed {
            Store::Owned(codes) if codes.layout() != layout => {
                Store::Owned(PackedCodes::relaid(codes.view(), layout)?)
            }
            packed => packed,
        };
        (index.packed, index.numbers, index.column) = (packed, numbers, column);
        index.partition = partition;
        Ok(index)
    }
}
