// Literal is a type as JSON has it: an enumeration of texts is the texts themselves.
export type Literal<T> = T extends string
  ? `${T}`
  : T extends (infer U)[]
    ? Literal<U>[]
    : T extends object
      ? { [K in keyof T]: Literal<T[K]> }
      : T;
