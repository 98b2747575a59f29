// Simulated.
int main() { return 0; }
