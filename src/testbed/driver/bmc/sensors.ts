/** The sensors of a virtual BMC. Each is read from a file in the BMC's folder, which a fault may change. */

export interface Sensor {
  number: number;
  name: string;
  /** Table 42-3 of the specification. */
  type: number;
  /** Table 43-15: 1 degrees C, 4 volts, 18 revolutions a minute. */
  unit: number;
  /** Entity (table 43-13). */
  entity: number;
  /** In the BMC's folder: a whole number. The raw reading is that number divided by `divisor`. */
  file: string;
  divisor: number;
  initial: number;
  /** value = raw * multiplier * 10^exponent, in the unit. */
  multiplier: number;
  exponent: number;
  upperNonCritical: number;
  upperCritical: number;
}

const celsius = { type: 0x01, unit: 1, divisor: 1, multiplier: 1, exponent: 0 };

/** Files hold degrees C, revolutions a minute and millivolts. */
export const sensors: readonly Sensor[] = [
  {
    ...celsius,
    number: 1,
    name: 'Inlet Temp',
    entity: 0x37,
    file: 'inlet-temp',
    initial: 22,
    upperNonCritical: 38,
    upperCritical: 42,
  },
  {
    ...celsius,
    number: 2,
    name: 'CPU Temp',
    entity: 0x03,
    file: 'cpu-temp',
    initial: 45,
    upperNonCritical: 85,
    upperCritical: 95,
  },
  {
    number: 3,
    name: 'Fan 1',
    type: 0x04,
    unit: 18,
    entity: 0x1d,
    file: 'fan1-rpm',
    divisor: 100,
    initial: 6000,
    multiplier: 100,
    exponent: 0,
    upperNonCritical: 240,
    upperCritical: 250,
  },
  {
    number: 4,
    name: '12V',
    type: 0x02,
    unit: 4,
    entity: 0x14,
    file: 'volt12-mv',
    divisor: 60,
    initial: 12_000,
    multiplier: 6,
    exponent: -2,
    upperNonCritical: 215,
    upperCritical: 225,
  },
];

/** A Full Sensor Record (IPMI 2.0, table 43-1): linear, unsigned, threshold based. 0 is its record id until it is stored. */
export function fullSensorRecord(sensor: Sensor): number[] {
  const name = [...Buffer.from(sensor.name, 'latin1')];
  const body = [
    // Key: owner (the BMC), LUN, number.
    0x20,
    0x00,
    sensor.number,
    // Entity and instance; initialised with events and scanning; per-threshold events, readable thresholds.
    sensor.entity,
    0x01,
    0x7f,
    0x68,
    sensor.type,
    0x01,
    // Event masks and thresholds: upper non-critical and critical, going high.
    0x80,
    0x02,
    0x80,
    0x02,
    0x18,
    0x18,
    0x00,
    sensor.unit,
    0x00,
    // Linear; M, tolerance, B, accuracy; exponents of the result and of B.
    0x00,
    sensor.multiplier & 0xff,
    (sensor.multiplier >> 8) << 6,
    0x00,
    0x00,
    0x00,
    (sensor.exponent & 0x0f) << 4,
    // No nominal readings; the range of a byte.
    0x00,
    0x00,
    0x00,
    0x00,
    0xff,
    0x00,
    0x00,
    sensor.upperCritical,
    sensor.upperNonCritical,
    0x00,
    0x00,
    0x00,
    // Hysteresis, reserved, OEM, name in 8-bit ASCII.
    0x01,
    0x01,
    0x00,
    0x00,
    0x00,
    0xc0 | name.length,
    ...name,
  ];
  return [0x00, 0x00, 0x51, 0x01, body.length, ...body];
}
