"""Long tables of series with covariates: weather measured beside them, holidays of their country."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fourier_head.errors import UserError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Source:
    """Series of one file: which are targets, which are measured beside them, and how they are averaged.

    Args:
        file: parquet file with the columns id, start, freq and target.
        targets, beside: ids.
        country: whose holidays count.
        freq, horizon: of the table that is made; values are averaged to it.
        longest: steps kept, the last ones.
    """

    file: str
    targets: Sequence[str]
    beside: Sequence[str] = ()
    country: str | None = None
    freq: str = "D"
    horizon: int = 14
    longest: int = 1500

    @property
    def name(self) -> str:
        """Of the data set in results."""
        return f"{self.file.rpartition('_')[0] or self.file}/{self.freq}"

    def read(self, folder: Path) -> pd.DataFrame:
        """Return the long table: id, time, y and a column for each covariate."""
        import pandas as pd

        path = folder / f"{self.file}.parquet"
        if not path.is_file():
            raise UserError(f"{folder} has no file {path.name}.")
        table = pd.read_parquet(path).set_index("id")
        columns = {}
        for name in (*self.targets, *self.beside):
            row = table.loc[name]
            index = pd.date_range(row["start"], periods=len(row["target"]), freq=row["freq"])
            values = pd.Series(np.asarray(row["target"], dtype=float), index=index).resample(self.freq).mean()
            columns[name] = values[1:-1]  # the first and the last step may not be whole
        wide = pd.DataFrame(columns)[-self.longest :]
        parts = [wide[list(self.beside)].assign(id=name, y=wide[name]) for name in self.targets]
        return pd.concat([part.rename_axis("time").reset_index() for part in parts], ignore_index=True)


LONDON = ("temp_C", "hum", "wind_speed")
SEOUL = ("temperature", "humidity", "wind_speed", "solar_radiation")
TETUAN = ("temperature", "humidity", "general_diffuse_flow")
UTILITIES = (
    "Pacific Gas and Electric",
    "San Diego Gas and Electric",
    "Southern California Edison",
    "Valley Electric Association",
)
HOURLY = {"freq": "h", "horizon": 48, "longest": 4000}

SOURCES = (
    Source("london_bike_hourly", ["cnt"], LONDON, "GB"),
    Source("seoul_bike_hourly", ["rented_bike_count"], SEOUL, "KR"),
    Source("beijing_air_hourly", ["pm2.5"], ["DEWP", "TEMP", "PRES", "Iws"]),
    Source("metro_traffic_volume_hourly", ["traffic_volume"], ["temp", "clouds_all"], "US"),
    Source("us_grid_cal_elec_hourly", UTILITIES, country="US-CA"),
    Source("chicago_ridership_daily", ["Austin", "Quincy_Wells", "Belmont", "Oak_Park", "Clark_Lake"], country="US"),
    Source("misc_daily", ["madrid_metro", "madrid_bus", "madrid_road", "madrid_train"], country="ES-MD"),
    Source("london_bike_hourly", ["cnt"], LONDON, "GB", **HOURLY),  # type: ignore[arg-type]
    Source("seoul_bike_hourly", ["rented_bike_count"], SEOUL, "KR", **HOURLY),  # type: ignore[arg-type]
    Source("tetuan_power_10min", ["total_electricity"], TETUAN, **HOURLY),  # type: ignore[arg-type]
)
